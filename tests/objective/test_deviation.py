"""Mirrored predictions lie on both sides of the old one."""

from __future__ import annotations

import torch

from groupwise.objective.decisions import Deviation


def test_shares_of_the_way() -> None:
    live, old = torch.tensor([[3.0, 1.0]]), torch.tensor([[1.0, 1.0]])
    deviation = Deviation(live, old, torch.tensor([0.5]), torch.tensor([2.0]))
    assert deviation.clean().tolist() == [[6.0, 2.0]]
    assert deviation.clean(0.0).tolist() == [[2.0, 2.0]]
    assert deviation.clean(-1.0).tolist() == [[-2.0, 2.0]]
