"""Rewards of a few groups as the advantages are given them."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from groupwise.objective.grouped import Grouped
from groupwise.objective.running import Running
from groupwise.statistics import Reduce, alone


def grouped(*groups: Sequence[float | None], reduce: Reduce = alone) -> Grouped:
    """One list of rewards a group, `None` where missing."""
    rewards = [reward for group in groups for reward in group]
    index = [i for i, group in enumerate(groups) for _ in group]
    value = torch.tensor([[0.0 if reward is None else reward] for reward in rewards], dtype=torch.float64)
    present = torch.tensor([[reward is not None] for reward in rewards])
    return Grouped(value, present, torch.tensor(index), len(groups), torch.ones_like(value), reduce=reduce)


def advantages(kind: object, *groups: Sequence[float | None]) -> list[float]:
    """The advantages of these groups, member by member."""
    return kind(grouped(*groups), Running())[0][:, 0].tolist()  # type: ignore[operator]
