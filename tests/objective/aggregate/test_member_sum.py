"""1 / B: sums over decisions, mean over admitted members."""

from __future__ import annotations

import torch
from tests.objective.small import close

from groupwise.objective.aggregate import MemberSum
from groupwise.objective.decisions import Counts
from groupwise.statistics import Reduce, sum_over_one_process


def _counts(reduce: Reduce = sum_over_one_process) -> Counts:
    """Prompt 0: 3 + 1 decisions; prompt 1: 2 + 0 (all masked); prompt 2 was dropped; the last row is filler."""
    mask = torch.tensor([[1, 1, 1], [1, 0, 0], [1, 0, 1], [0, 0, 0], [0, 0, 0], [0, 0, 0]], dtype=torch.bool)
    admitted = torch.tensor([1, 1, 1, 1, 0, 0], dtype=torch.bool)
    real = torch.tensor([1, 1, 1, 1, 1, 0], dtype=torch.bool)
    return Counts(mask, admitted, real, torch.tensor([0, 0, 1, 1, 2, 0]), 3, reduce)


def test_one_over_admitted_members() -> None:
    close(
        MemberSum()(_counts()), [[1 / 4] * 3, [1 / 4, 0.0, 0.0], [1 / 4, 0.0, 1 / 4], [0.0] * 3, [0.0] * 3, [0.0] * 3]
    )


def test_counts_are_global() -> None:
    close(MemberSum()(_counts(lambda total: 2 * total)) * 2, MemberSum()(_counts()).tolist())
