"""Global counts: summed over processes, never zero."""

from __future__ import annotations

import torch

from groupwise.objective.decisions import Counts


def test_total_is_reduced_and_at_least_one() -> None:
    mask = torch.tensor([[True, False], [True, True]])
    members = torch.ones(2, dtype=torch.bool)
    counts = Counts(mask, members, members, torch.zeros(2, dtype=torch.long), 1, lambda total: total + 4)
    assert float(counts.total(mask)) == 7.0
    single_process = Counts(mask, members, members, torch.zeros(2, dtype=torch.long), 1, lambda total: total)
    assert float(single_process.total(torch.zeros(2, dtype=torch.bool))) == 1.0
