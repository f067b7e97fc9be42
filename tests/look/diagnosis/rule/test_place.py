"""A reward that follows the place at which members were scored."""

from __future__ import annotations

import pytest
from tests.look.diagnosis.rule.test_advice import course

from groupwise_look.diagnosis import diagnose, headline

INSIDE, BETWEEN = "groups__place_correlation", "batch__place_correlation"


def spoken(correlations: dict[str, tuple[float, float]], settings: dict[str, object] | None = None) -> list[str]:
    return [
        finding.what for finding in diagnose(course(**correlations), settings) if finding.rule == "reward_follows_place"
    ]


@pytest.mark.parametrize(
    ("correlations", "words"),
    [
        ({INSIDE: (0.9, 0.9)}, ["A member's reward and its place in the group"]),
        ({INSIDE: (-0.9, -0.9)}, ["A member's reward and its place in the group"]),
        ({BETWEEN: (0.9, 0.9)}, ["A group's mean reward and its place in the batch"]),
        ({INSIDE: (0.1, 0.1), BETWEEN: (0.1, 0.1)}, []),
        ({INSIDE: (0.0, 0.9)}, []),
    ],
)
def test_a_correlation_that_stays_is_said(correlations: dict[str, tuple[float, float]], words: list[str]) -> None:
    said = spoken(correlations)
    assert len(said) == len(words)
    assert all(text.startswith(word) for text, word in zip(said, words, strict=True))


def test_adaptive_sampling_sets_an_order_of_prompts_and_none_of_members() -> None:
    settings = {"train": {"adaptive_sampling": {"floor": 0.1}}}
    assert spoken({BETWEEN: (0.9, 0.9)}, settings) == []
    assert len(spoken({INSIDE: (0.9, 0.9)}, settings)) == 1


def test_correlations_of_two_groups_that_agree_by_luck_are_not_said() -> None:
    rows = [row | {"batch/place_correlation": float(step % 4 != 0) * 2 - 1} for step, row in enumerate(course())]
    assert "reward_follows_place" not in {finding.rule for finding in diagnose(rows)}


def test_it_is_the_cause_of_a_reward_that_does_not_rise() -> None:
    rows = course(num_steps=120, groups__place_correlation=(0.9, 0.9), reward=(0.2, 0.2), reward_std=(0.4, 0.4))
    found = headline(diagnose(rows))
    assert found is not None
    assert found.cause.rule == "reward_follows_place"
    assert [finding.rule for finding in found.consequences] == ["reward_flat"]
