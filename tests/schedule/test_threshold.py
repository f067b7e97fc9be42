"""A coefficient that acts at or below a target and moves by a fixed step."""

from __future__ import annotations

import pytest
from pydantic import ValidationError

from groupwise.objective import Objective
from groupwise.schedule import Threshold


def test_moves_by_its_step_between_its_bounds() -> None:
    schedule = Threshold(initial=0.01, target=0.5, delta=0.02, low=0.005, high=0.04)
    state = schedule.init()
    values = []
    for measured in (0.5, 0.1, 0.4, 0.9, 0.6, 0.7, 0.2):
        state = schedule.observe(state, measured)
        values.append(schedule.at(0, state))
    assert values == pytest.approx([0.03, 0.04, 0.04, 0.0, 0.0, 0.0, 0.025])
    assert (schedule.at(7), schedule.extremes()) == (0.0, (0.0, 0.04))


def test_nothing_measured_moves_nothing() -> None:
    schedule = Threshold(initial=0.01)
    assert schedule.observe(0.3, None) == 0.3


def test_bounds_out_of_order_are_refused() -> None:
    with pytest.raises(ValidationError, match=r"low \(0.5\) must not lie above high \(0.2\)"):
        Threshold(initial=0.1, low=0.5, high=0.2)


def test_the_objective_follows_the_entropy_that_was_measured() -> None:
    objective = Objective.preset("bnpo", **{"entropy": {"kind": "threshold", "initial": 0.01, "target": 1.0}})
    assert objective.requires == {"log_prob", "entropy"}
    states = [objective.init()]
    for metrics in ({"entropy": 0.7}, {"entropy": float("nan")}, {}, {"entropy": 1.2}):
        states.append(objective.observe(states[-1], metrics))
    assert [state.entropy for state in states] == pytest.approx([-0.01, 0.015, 0.015, 0.015, -0.01])
    assert objective.adopt(states[1], objective).entropy == pytest.approx(0.015)
    plain = Objective.preset("bnpo")
    assert (plain.adopt(states[1], objective).entropy, objective.adopt(states[1], plain).entropy) == (None, -0.01)
