"""1 / (B L) over every sampled member: dropped groups stay in the divisor, filler does not."""

from __future__ import annotations

import torch
from tests.objective.small import close

from groupwise.objective.aggregate import FixedLength
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


def test_counts_are_global() -> None:
    close(FixedLength(length=10)(_counts(lambda total: 2 * total)) * 2, FixedLength(length=10)(_counts()).tolist())
