"""The optional bound on an advantage."""

from __future__ import annotations

import torch

from groupwise.objective.decisions import bounded


def test_clamped_both_ways_or_left() -> None:
    values = torch.tensor([-5.0, 0.5, 5.0])
    assert bounded(values, 3.0).tolist() == [-3.0, 0.5, 3.0]
    assert bounded(values, None) is values
