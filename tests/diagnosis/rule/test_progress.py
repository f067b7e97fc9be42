"""A reward that never rose and falls: what gives no direction is the cause."""

from __future__ import annotations

from tests.diagnosis.rule.test_advice import course

from groupwise.diagnosis import diagnose, headline


def test_a_reward_that_never_rose_is_the_cause_of_its_fall() -> None:
    rows = course(num_steps=120, reward=(0.5, 0.5), reward_std=(0.4, 0.4))
    for row in rows[40:]:
        row["reward"] = 0.2
    named = headline(diagnose(rows))
    assert named is not None
    assert (named.cause.rule, [finding.rule for finding in named.consequences]) == ("reward_flat", ["reward_falls"])


def test_a_reward_that_had_risen_falls_for_another_cause() -> None:
    rows = course(num_steps=120, reward=(0.2, 0.9), reward_std=(0.4, 0.4))
    for place, row in enumerate(rows[80:]):
        row["reward"] = 0.9 - 0.02 * place
    named = headline(diagnose(rows))
    assert named is not None
    assert named.cause.rule == "reward_falls"
