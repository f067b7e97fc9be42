"""1 / (B L) over every sampled member: dropped groups stay in the divisor, filler does not."""

from __future__ import annotations

import torch
from tests.objective.small import close

from groupwise.objective.aggregate import FixedLength, MemberMean, MemberSum, PromptMean, TokenMean
from groupwise.objective.decisions import Counts
from groupwise.statistics import Reduce, sum_over_one_process


def _counts(reduce: Reduce = sum_over_one_process) -> Counts:
    """Prompt 0: 3 + 1 decisions; prompt 1: 2 + 0 (all masked); prompt 2 was dropped; the last row is filler."""
    mask = torch.tensor([[1, 1, 1], [1, 0, 0], [1, 0, 1], [0, 0, 0], [0, 0, 0], [0, 0, 0]], dtype=torch.bool)
    admitted = torch.tensor([1, 1, 1, 1, 0, 0], dtype=torch.bool)
    real = torch.tensor([1, 1, 1, 1, 1, 0], dtype=torch.bool)
    return Counts(mask, admitted, real, torch.tensor([0, 0, 1, 1, 2, 0]), 3, reduce)


def test_one_over_sampled_members_and_the_length() -> None:
    close(
        FixedLength(length=10)(_counts()),
        [[1 / 50] * 3, [1 / 50, 0.0, 0.0], [1 / 50, 0.0, 1 / 50], [0.0] * 3, [0.0] * 3, [0.0] * 3],
    )


def test_fixed_length_counts_are_global() -> None:
    close(FixedLength(length=10)(_counts(lambda total: 2 * total)) * 2, FixedLength(length=10)(_counts()).tolist())


# 1 / (B n_b): members weigh the same, also those without a decision.


def test_one_over_admitted_members_and_their_decisions() -> None:
    close(
        MemberMean()(_counts()), [[1 / 12] * 3, [1 / 4, 0.0, 0.0], [1 / 8, 0.0, 1 / 8], [0.0] * 3, [0.0] * 3, [0.0] * 3]
    )


def test_member_mean_counts_are_global() -> None:
    close(MemberMean()(_counts(lambda total: 2 * total)) * 2, MemberMean()(_counts()).tolist())


# 1 / B: sums over decisions, mean over admitted members.


def test_one_over_admitted_members() -> None:
    close(
        MemberSum()(_counts()), [[1 / 4] * 3, [1 / 4, 0.0, 0.0], [1 / 4, 0.0, 1 / 4], [0.0] * 3, [0.0] * 3, [0.0] * 3]
    )


def test_member_sum_counts_are_global() -> None:
    close(MemberSum()(_counts(lambda total: 2 * total)) * 2, MemberSum()(_counts()).tolist())


# 1 / (P N_p): admitted prompts weigh the same.


def test_one_over_admitted_prompts_and_their_decisions() -> None:
    close(
        PromptMean()(_counts()), [[1 / 8] * 3, [1 / 8, 0.0, 0.0], [1 / 4, 0.0, 1 / 4], [0.0] * 3, [0.0] * 3, [0.0] * 3]
    )


def test_an_admitted_prompt_whose_decisions_are_all_masked_still_counts() -> None:
    mask = torch.tensor([[True, True], [True, False], [False, False], [False, False]])
    everyone = torch.ones(4, dtype=torch.bool)
    close(
        PromptMean()(Counts(mask, everyone, everyone, torch.tensor([0, 0, 1, 1]), 2, sum_over_one_process)),
        [[1 / 6] * 2, [1 / 6, 0.0], [0.0] * 2, [0.0] * 2],
    )


def test_prompt_mean_counts_are_global() -> None:
    close(PromptMean()(_counts(lambda total: 2 * total)) * 2, PromptMean()(_counts()).tolist())


# Every valid decision weighs 1 / N.


def test_one_over_all_valid_decisions() -> None:
    close(
        TokenMean()(_counts()), [[1 / 6] * 3, [1 / 6, 0.0, 0.0], [1 / 6, 0.0, 1 / 6], [0.0] * 3, [0.0] * 3, [0.0] * 3]
    )


def test_token_mean_counts_are_global() -> None:
    close(TokenMean()(_counts(lambda total: 2 * total)) * 2, TokenMean()(_counts()).tolist())
