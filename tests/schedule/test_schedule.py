"""Schedules: a number or a table with a kind, and the values of each kind."""

from __future__ import annotations

import re
from typing import Literal

import pytest
import torch
from pydantic import TypeAdapter, ValidationError
from transformers import get_scheduler

from groupwise.config import Config, ConfigError, validate
from groupwise.objective import Objective
from groupwise.schedule import (
    Adaptive,
    AnySchedule,
    Constant,
    Cosine,
    Fixed,
    Linear,
    Measured,
    Multiplicative,
    NotNegative,
    Schedule,
    Threshold,
    WarmUp,
)

# A coefficient that steers a measurement towards a target.


def test_moves_with_the_error_within_a_fifth() -> None:
    schedule = Adaptive(initial=0.1, target=0.05, horizon=10)
    assert schedule.init() == 0.1
    # Errors +10 %, beyond +20 %, beyond -20 %, none: value (1 + error / 10).
    assert [schedule.observe(0.1, measured) for measured in (0.055, 5.0, 0.0, 0.05)] == pytest.approx(
        [0.101, 0.102, 0.098, 0.1]
    )


# A schedule of one's own: its numbers are those of its class, and lie where it says.


HERE = "tests.schedule.test_schedule"


class Sawtooth(Fixed):
    """From `high` down to 0, again and again."""

    high: float = 1.0
    period: int = 4

    def at(self, step: int, state: float | None = None) -> float:
        return self.high * (1 - step % self.period / self.period)

    def extremes(self) -> tuple[float, float]:
        return 0.0, self.high


class NoEnds(Sawtooth):
    """Has no extremes."""

    def extremes(self) -> tuple[float, float]:
        return None  # type: ignore[return-value]


class Liar(Sawtooth):
    """Says less than it gives."""

    def extremes(self) -> tuple[float, float]:
        return 0.0, 0.5


class Doubling(Measured):
    """Doubles whenever something was measured."""

    def moved(self, value: float, measured: float) -> float:
        return 2 * value

    def extremes(self) -> tuple[float, float]:
        return 0.0, 100.0


class Two(Config):
    rate: Schedule
    beta: AnySchedule


def two(rate: str, beta: str) -> Two:
    table = {"kind": "callable", "path": f"{HERE}:{rate}"}
    return validate(Two, {"rate": table, "beta": {**table, "path": f"{HERE}:{beta}", "settings": {"initial": 3.0}}})


def test_the_numbers_are_those_of_the_class() -> None:
    schedules = two("Sawtooth", "Doubling")
    assert [schedules.rate.at(step) for step in range(5)] == [1.0, 0.75, 0.5, 0.25, 1.0]
    assert schedules.rate.may_be_positive()
    state = schedules.beta.observe(schedules.beta.init(), 1.0)
    assert (schedules.beta.init(), state, schedules.beta.at(1, state)) == (3.0, 6.0, 6.0)


def test_a_schedule_that_follows_a_measurement_is_refused_where_none_is_made() -> None:
    with pytest.raises(
        ConfigError, match=r"rate.path = 'tests.*Doubling': Doubling does not extend groupwise.schedule.Fixed"
    ):
        two("Doubling", "Doubling")


def test_a_value_outside_its_extremes_is_named() -> None:
    with pytest.raises(ValueError, match=r"Liar: the value at step 1 is 0\.75, and its extremes\(\) are 0 and 0\.5"):
        two("Liar", "Doubling").rate.at(1)


def test_extremes_that_are_none_are_named() -> None:
    with pytest.raises(ConfigError, match=r"extremes\(\) returned None; return the least and the greatest value"):
        Objective.preset("grpo", **{"entropy.kind": "callable", "entropy.path": f"{HERE}:NoEnds"})


def test_a_users_schedule_may_take_the_place_of_a_coefficient() -> None:
    objective = Objective.preset(
        "grpo", **{"divergence.beta.kind": "callable", "divergence.beta.path": f"{HERE}:Sawtooth"}
    )
    assert objective.divergence.beta.at(2) == 0.5
    assert objective.needs_reference


# The same value at every step.


# Half a cosine that ends.


def test_cosine_from_start_to_end_and_no_further() -> None:
    # (1 + cos(pi / 3)) / 2 = 3/4, (1 + cos(2 pi / 3)) / 2 = 1/4.
    schedule = Cosine(start=2.0, end=0.0, num_steps=3)
    assert [schedule.at(step) for step in (0, 1, 2, 3, 9)] == pytest.approx([2.0, 1.5, 0.5, 0.0, 0.0])


def test_a_plain_number_is_a_constant() -> None:
    assert TypeAdapter(Schedule).validate_python(2) == Constant(value=2.0)
    table = {"kind": "linear", "start": 0.0, "end": 1.0, "num_steps": 3}
    assert TypeAdapter(Schedule).validate_python(table) == Linear(start=0.0, end=1.0, num_steps=3)


def test_kinds_that_follow_a_measurement_are_taken_only_where_one_is_made() -> None:
    table = {"kind": "multiplicative", "initial": 0.1, "lower": 0.0, "upper": 1.0}
    assert TypeAdapter(AnySchedule).validate_python(table) == Multiplicative(initial=0.1, lower=0.0, upper=1.0)
    with pytest.raises(ValidationError, match="multiplicative"):
        TypeAdapter(Schedule).validate_python(table)


@pytest.mark.parametrize("value", [True, "unset", [1.0], None])
def test_a_value_that_is_neither_number_nor_table_is_refused(value: object) -> None:
    with pytest.raises(ValidationError, match=f"is {re.escape(repr(value))}; write a number, or a table such as"):
        TypeAdapter(Schedule).validate_python(value)


@pytest.mark.parametrize(
    "table",
    [
        float("nan"),
        float("inf"),
        {"kind": "linear", "start": float("nan"), "end": 1.0, "num_steps": 3},
        {"kind": "cosine", "start": 1.0, "end": float("-inf"), "num_steps": 3},
        {"kind": "constant", "value": float("nan")},
        {"kind": "adaptive", "initial": float("inf"), "target": 1.0},
        {"kind": "multiplicative", "initial": 0.1, "lower": 0.0, "upper": float("inf")},
    ],
)
def test_numbers_that_are_not_finite_are_refused(table: object) -> None:
    with pytest.raises(ValidationError, match="finite"):
        TypeAdapter(AnySchedule).validate_python(table)


def test_a_schedule_that_goes_below_zero_is_refused_where_that_makes_no_sense() -> None:
    adapter = TypeAdapter(NotNegative)
    assert adapter.validate_python(0) == Constant(value=0.0)
    for table in (
        -1.0,
        {"kind": "linear", "start": 1.0, "end": -0.5, "num_steps": 3},
        {"kind": "cosine", "start": -0.5, "end": 1.0, "num_steps": 3},
    ):
        with pytest.raises(ValidationError, match="must not be negative"):
            adapter.validate_python(table)


# A straight line that ends.


# A coefficient multiplied while a measurement is outside its bounds: source 004's rule.


def test_up_above_down_below_and_still_between() -> None:
    schedule = Multiplicative(initial=0.1, lower=0.01, upper=0.1, maximum=0.2)
    # 0.1 * 1.5, 0.1 / 1.5, unchanged on and between the bounds; 0.15 * 1.5 = 0.225 stops at 0.2.
    assert [schedule.observe(0.1, measured) for measured in (0.2, 0.001, 0.05, 0.1, 0.01)] == pytest.approx(
        [0.15, 0.1 / 1.5, 0.1, 0.1, 0.1]
    )
    assert schedule.observe(0.15, 0.2) == 0.2
    assert schedule.observe(0.15, None) == 0.15
    assert (schedule.init(), schedule.at(3), schedule.at(3, 0.15)) == (0.1, 0.1, 0.15)


@pytest.mark.parametrize("keys", [{"lower": 0.2, "upper": 0.1}, {"lower": 0.0, "upper": 0.1, "maximum": 0.05}])
def test_bounds_are_ordered(keys: dict[str, float]) -> None:
    with pytest.raises(ValidationError, match="must"):
        Multiplicative(initial=0.1, **keys)


# A coefficient that acts at or below a target and moves by a fixed step.


def test_moves_by_its_step_between_its_bounds() -> None:
    schedule = Threshold(initial=0.01, target=0.5, delta=0.02, low=0.005, high=0.04)
    state = schedule.init()
    values = []
    for measured in (0.5, 0.1, 0.4, 0.9, 0.6, 0.7, 0.2):
        state = schedule.observe(state, measured)
        values.append(schedule.at(0, state))
    assert values == pytest.approx([0.03, 0.04, 0.04, 0.0, 0.0, 0.0, 0.025])
    assert (schedule.at(7), schedule.extremes()) == (0.0, (0.0, 0.04))


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


# A rise and a fall: the values of transformers at every step, and means over the updates of a step.


NAMES = {"cosine": "cosine", "linear": "linear", "none": "constant_with_warmup"}


def of_transformers(fall: str, num_warm_up: int, num_updates: int, num: int) -> list[float]:
    optimiser = torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], lr=0.3)
    scheduler = get_scheduler(NAMES[fall], optimiser, num_warmup_steps=num_warm_up, num_training_steps=num_updates)
    rates = []
    for _ in range(num):
        rates.append(scheduler.get_last_lr()[0])
        optimiser.step()
        scheduler.step()
    return rates


@pytest.mark.parametrize("fall", NAMES)
@pytest.mark.parametrize(("num_warm_up", "num_updates"), [(0, 7), (1, 7), (3, 17), (7, 7)])
def test_every_rate_is_that_of_transformers(
    fall: Literal["cosine", "linear", "none"], num_warm_up: int, num_updates: int
) -> None:
    schedule = WarmUp(peak=0.3, warm_up_updates=num_warm_up, num_updates=num_updates, fall=fall)
    rates = [schedule.at(step) for step in range(num_updates)]
    assert rates == pytest.approx(of_transformers(fall, num_warm_up, num_updates, num_updates), abs=1e-15)
    assert max(rates) <= schedule.extremes()[1]
    assert min(rates) >= schedule.extremes()[0]


def test_a_step_of_several_updates_has_their_mean() -> None:
    # Updates 0 to 5 have 0, 1, 2, 3, 1.5 and 0: (0 + 1 + 2) / 3 and (3 + 1.5 + 0) / 3.
    schedule = WarmUp(peak=3.0, warm_up_updates=3, num_updates=5, fall="linear", updates_per_step=3)
    assert [schedule.at(step) for step in range(4)] == pytest.approx([1.0, 1.5, 0.0, 0.0])


def test_it_ends_where_it_is_told_to_and_stays() -> None:
    schedule = WarmUp(peak=3.0, end=1.0, warm_up_updates=1, num_updates=3)
    assert [schedule.at(step) for step in (0, 1, 2, 3, 9)] == pytest.approx([0.0, 3.0, 2.0, 1.0, 1.0])
    assert schedule.extremes() == (0.0, 3.0)
    assert WarmUp(peak=3.0, end=1.0, warm_up_updates=0, num_updates=3).extremes() == (1.0, 3.0)
    assert WarmUp(peak=3.0, warm_up_updates=0, num_updates=3, fall="none").extremes() == (3.0, 3.0)
