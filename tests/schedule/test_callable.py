"""A schedule of one's own: its numbers are those of its class, and lie where it says."""

from __future__ import annotations

import pytest

from groupwise.config import Config, ConfigError, validate
from groupwise.objective import Objective
from groupwise.schedule import AnySchedule, Fixed, Measured, Schedule

HERE = "tests.schedule.test_callable"


class Sawtooth(Fixed):
    """From `high` down to 0, again and again."""

    high: float = 1.0
    period: int = 4

    def at(self, step: int, state: float | None = None) -> float:
        return self.high * (1 - step % self.period / self.period)

    def extremes(self) -> tuple[float, float]:
        return 0.0, self.high


class Liar(Sawtooth):
    """Says less than it gives."""

    def extremes(self) -> tuple[float, float]:
        return 0.0, 0.5


class NoEnds(Sawtooth):
    """Has no extremes."""

    def extremes(self) -> tuple[float, float]:
        return None  # type: ignore[return-value]


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
