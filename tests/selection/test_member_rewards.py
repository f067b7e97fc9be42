"""What is measured of which prefix, and what a pick is credited with, by hand."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
import torch
from tests.selection.handmade import Majority, example, query

from groupwise.reward import RewardError, Rewards
from groupwise_selection.config import PrefixConfig
from groupwise_selection.measurement import Measures
from groupwise_selection.member_rewards import MemberRewards, measured_prefixes
from groupwise_selection.policy.choices import NOTHING, STOP, Choices

POOL = [example("a", "yes"), example("b", "yes"), example("c", "no")]
ASKED = query("q", POOL, choices=("yes", "no"))


def chance(
    prompts: Sequence[Any], completions: Sequence[Any], probability: Sequence[float], shots: Sequence[int]
) -> list[float]:
    return [value + 10 * size for value, size in zip(probability, shots, strict=True)]


def choices(*picks: list[int]) -> Choices:
    given = torch.tensor(picks)
    mask = torch.tensor([[place == 0 or row[place - 1] >= 0 for place in range(len(row))] for row in picks])
    return Choices(given, mask, torch.zeros(*given.shape, 1))


def rewarded(prefix: PrefixConfig | None, *picks: list[int]) -> Any:
    made, drawn = MemberRewards(Rewards({"chance": chance}), prefix), choices(*picks)
    queries = [ASKED] * len(picks)
    measured = measured_prefixes(Measures(Majority()), queries, drawn, "first_pick_last", every=prefix is not None)
    return made.reward(queries, measured, drawn.mask, judges=False)


def test_without_prefixes_the_whole_choice_is_rewarded_alone() -> None:
    table = rewarded(None, [0, 1, 2], [2, STOP, NOTHING])
    # Three shown, two of them yes: (1 + 2) / (2 + 3); one that says no: 1 / 3.
    assert table.values["chance"] == pytest.approx([30 + 3 / 5, 10 + 1 / 3])
    assert not table.maps


def test_each_pick_is_credited_with_its_own_and_later_prefixes() -> None:
    table = rewarded(PrefixConfig(discount=0.5), [0, 1, 2], [2, STOP, NOTHING])
    earned = [10 + 2 / 3, 20 + 3 / 4, 30 + 3 / 5]
    assert table.values["chance"] == pytest.approx([sum(earned) / 3, 10 + 1 / 3])
    expected = [(earned[0] + 0.5 * earned[1] + 0.25 * earned[2]) / 1.75, (earned[1] + 0.5 * earned[2]) / 1.5, earned[2]]
    assert table.maps["chance"][0].tolist() == pytest.approx(expected)
    # The decision to end is credited with where it ended.
    assert table.maps["chance"][1].tolist() == pytest.approx([10 + 1 / 3, 10 + 1 / 3, 0.0])


def test_a_reward_that_is_missing_for_a_prefix_is_an_error_that_names_the_query() -> None:
    def missing(completions: Sequence[Any], shots: Sequence[int]) -> list[float | None]:
        return [None if size == 2 else 1.0 for size in shots]

    drawn = choices([0, 1])
    made = MemberRewards(Rewards({"gap": missing}), PrefixConfig())
    measured = measured_prefixes(Measures(Majority()), [ASKED], drawn, "first_pick_last", every=True)
    with pytest.raises(RewardError, match="reward 'gap' is missing for a prefix of query 'q'"):
        made.reward([ASKED], measured, drawn.mask, judges=False)
