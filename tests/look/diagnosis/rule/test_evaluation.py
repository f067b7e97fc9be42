"""When an evaluation has risen beyond the luck of its members."""

from __future__ import annotations

from typing import Any

import pytest

from groupwise_look.diagnosis.rule.rising import evaluations_stay, luck, num_evaluated
from groupwise_look.diagnosis.stage import Stage

HELD_OUT = {"domain": {"data": {"num_held_out": 200}}}


def stage(settings: dict[str, Any] | None = None, **evaluations: list[float]) -> Stage:
    """A stage whose members' rewards have a standard deviation of 0.5, with these evaluations, one every ten steps."""
    watched = Stage("grpo", settings)
    for place in range(max(map(len, evaluations.values()))):
        watched.add({"step": 10 * place, **{f"eval/{k.replace('__', '/')}": v[place] for k, v in evaluations.items()}})
        for step in range(1, 10):
            watched.add({"step": 10 * place + step, "reward": 0.4, "rewards_std": 0.5})
    return watched


def test_luck_is_the_error_of_a_difference_of_two_means() -> None:
    watched = stage(HELD_OUT, greedy__reward=[0.2, 0.2])
    assert num_evaluated(watched) == 200
    assert luck(watched) == pytest.approx(0.05)
    assert luck(stage(greedy__reward=[0.2, 0.2])) == 0.0


@pytest.mark.parametrize(
    ("settings", "evaluations", "stays"),
    [
        pytest.param(HELD_OUT, {"greedy__reward": [0.2, 0.29]}, True, id="within two errors"),
        pytest.param(HELD_OUT, {"greedy__reward": [0.2, 0.31]}, False, id="beyond them"),
        pytest.param({}, {"greedy__reward": [0.2, 0.21]}, False, id="of unknown size"),
        pytest.param({}, {"greedy__reward": [0.2, 0.2]}, True, id="the same"),
        pytest.param(HELD_OUT, {"greedy__reward": [0.2, 0.31], "a__reward": [0.2, 0.2]}, True, id="one of two by luck"),
        pytest.param(HELD_OUT, {"greedy__reward": [0.2]}, False, id="not again"),
    ],
)
def test_a_rise_within_luck_is_none(settings: dict[str, Any], evaluations: dict[str, list[float]], stays: bool) -> None:
    assert evaluations_stay(stage(settings, **evaluations)) == stays
