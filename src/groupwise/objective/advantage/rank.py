"""The place in the group's order, whatever the distances."""

from __future__ import annotations

from typing import ClassVar, Literal, final

import torch
from torch import Tensor

from groupwise.config import Config
from groupwise.objective.grouped import Grouped
from groupwise.objective.running import Running


@final
class Rank(Config):
    """`A_i = 1 - 2 rank_i / (n - 1)`, rank 0 the best, average ranks on ties: from 1 for the best to -1 for the worst.

    A flat group gives exactly 0. Invariant under every increasing map of the reward; it discards the size of differences (source 004 warns of it).

    Example:
        Rewards 3, 1, 1: ranks 0, 1.5, 1.5, advantages 1, -0.5, -0.5.
    """

    group_baseline: ClassVar[bool] = True
    kind: Literal["rank"] = "rank"

    def __call__(self, rewards: Grouped, running: Running) -> tuple[Tensor, Running]:
        # Ordered by (group, reward), a member's average rank is half the number of better members of its group, less half the number of worse ones.
        columns = [self._column(rewards, column) for column in range(rewards.value.shape[1])]
        return rewards.compared(torch.stack(columns, dim=1)), running

    @staticmethod
    def _column(rewards: Grouped, column: int) -> Tensor:
        present = rewards.present[:, column]
        value = rewards.value[:, column]
        key = torch.stack([torch.where(present, rewards.index, rewards.num_groups).double(), value], dim=1)
        levels, inverse, counts = torch.unique(key, dim=0, return_inverse=True, return_counts=True)
        before = counts.cumsum(0) - counts
        group = levels[:, 0].long()
        sizes = counts.new_zeros(rewards.num_groups + 1).index_add(0, group, counts)
        start = sizes.cumsum(0) - sizes
        worse = (before - start[group])[inverse]
        better = (sizes[group] - (before - start[group]) - counts)[inverse]
        return (worse - better).double() / (sizes[group][inverse] - 1).clamp(min=1)
