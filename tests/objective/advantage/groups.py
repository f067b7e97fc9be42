"""Rewards of a few groups as the advantages are given them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import torch

from groupwise.objective.batch import Grouped, Running
from groupwise.statistics import Reduce, sum_over_one_process


def grouped(
    *groups: Sequence[float | None], reduce: Reduce = sum_over_one_process, lengths: Sequence[float] | None = None
) -> Grouped:
    """One list of rewards a group, `None` where missing; members of one decision if no lengths are given."""
    rewards = [reward for group in groups for reward in group]
    index = [i for i, group in enumerate(groups) for _ in group]
    value = torch.tensor([[0.0 if reward is None else reward] for reward in rewards], dtype=torch.float64)
    present = torch.tensor([[reward is not None] for reward in rewards])
    length = torch.ones_like(value) if lengths is None else torch.tensor(lengths, dtype=torch.float64)[:, None]
    alone_there = Grouped(value, present, torch.tensor(index), len(groups), length, reduce=reduce)
    return replace(alone_there, parts={"reward": alone_there}, weights={"reward": 1.0})


def advantages(kind: object, *groups: Sequence[float | None]) -> list[float]:
    """The advantages of these groups, member by member."""
    return kind(grouped(*groups), Running())[0][:, 0].tolist()  # type: ignore[operator]
