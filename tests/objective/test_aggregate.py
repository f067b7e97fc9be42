"""Weights of decisions, worked out by hand: what each kind divides by."""

from __future__ import annotations

from typing import Any

import pytest
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


@pytest.mark.parametrize(
    ("aggregation", "long", "single", "holed"),
    [
        # Over every sampled member and the length: dropped groups stay in the divisor, filler does not.
        (FixedLength(length=10), 1 / 50, 1 / 50, 1 / 50),
        # Members weigh the same, also those without a decision.
        (MemberMean(), 1 / 12, 1 / 4, 1 / 8),
        (MemberSum(), 1 / 4, 1 / 4, 1 / 4),
        # Admitted prompts weigh the same.
        (PromptMean(), 1 / 8, 1 / 8, 1 / 4),
        (TokenMean(), 1 / 6, 1 / 6, 1 / 6),
    ],
    ids=lambda value: getattr(value, "kind", ""),
)
def test_weights_of_decisions_by_counts_of_all_processes(
    aggregation: Any, long: float, single: float, holed: float
) -> None:
    weights = [[long] * 3, [single, 0.0, 0.0], [holed, 0.0, holed], [0.0] * 3, [0.0] * 3, [0.0] * 3]
    close(aggregation(_counts()), weights)
    close(aggregation(_counts(lambda total: 2 * total)) * 2, weights)


def test_an_admitted_prompt_whose_decisions_are_all_masked_still_counts() -> None:
    mask = torch.tensor([[True, True], [True, False], [False, False], [False, False]])
    everyone = torch.ones(4, dtype=torch.bool)
    close(
        PromptMean()(Counts(mask, everyone, everyone, torch.tensor([0, 0, 1, 1]), 2, sum_over_one_process)),
        [[1 / 6] * 2, [1 / 6, 0.0], [0.0] * 2, [0.0] * 2],
    )
