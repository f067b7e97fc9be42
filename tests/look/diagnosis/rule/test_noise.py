"""A reward that gives equal answers different values, and one that had been learnt all the same."""

from __future__ import annotations

import pytest
from tests.look.diagnosis.rule.test_advice import course

from groupwise_look.diagnosis import diagnose, headline


@pytest.mark.parametrize(
    ("shares", "severities"),
    [((1.0, 1.0), ["warning"]), ((0.2, 0.2), []), ((0.0, 0.0), []), ((0.0, 1.0), ["note"])],
)
def test_copies_that_differ_as_much_as_others_are_named(shares: tuple[float, float], severities: list[str]) -> None:
    rows = course(groups__copies_noise=shares, reward=(0.2, 0.2))
    found = [finding for finding in diagnose(rows) if finding.rule == "reward_is_noise"]
    assert [finding.severity for finding in found] == severities


def test_a_rise_by_luck_excuses_nothing() -> None:
    rows = course(groups__copies_noise=(1.0, 1.0), reward=(0.2, 0.9))
    assert [finding.severity for finding in diagnose(rows) if finding.rule == "reward_is_noise"] == ["warning"]


def test_it_is_the_cause_of_a_reward_that_does_not_rise() -> None:
    rows = course(num_steps=120, groups__copies_noise=(1.0, 1.0), reward=(0.2, 0.2), reward_std=(0.4, 0.4))
    found = headline(diagnose(rows))
    assert found is not None
    assert found.cause.rule == "reward_is_noise"
    assert [finding.rule for finding in found.consequences] == ["reward_flat"]
