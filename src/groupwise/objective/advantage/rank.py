"""The place in the group's order, whatever the distances."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Literal, final

import torch
from jaxtyping import Float
from torch import Tensor

from groupwise.objective.grouped import Grouped
from groupwise.objective.running import Running
from groupwise.objective.slot import AdvantageSlot

if TYPE_CHECKING:
    from groupwise.objective.objective import Objective


@final
class Rank(AdvantageSlot):
    """`A_i = 1 - 2 rank_i / (n - 1)`, rank 0 the best, average ranks on ties: from 1 for the best to -1 for the worst.

    A flat group gives exactly 0. Invariant under every increasing map of the reward; it discards the size of
    differences (source 004 warns of it).

    `ties = "order"` is source 004's own code, kept for comparison: equal rewards are ranked in the order of the
    members, so that a group with ties, and even a flat one, gets advantages that mean nothing.

    Example:
        Rewards 3, 1, 1: ranks 0, 1.5, 1.5, advantages 1, -0.5, -0.5; with `ties = "order"` ranks 0, 1, 2, advantages 1,
        0, -1.
    """

    kind: Literal["rank"] = "rank"
    ties: Literal["average", "order"] = "average"
    """Equal rewards get their average rank, or ranks in the order of the members."""

    def advises(self, objective: Objective) -> Iterator[str]:
        """Yields what ranks leave out."""
        yield "advantage.kind = 'rank' discards the size of differences between rewards"

    def __call__(self, rewards: Grouped, running: Running) -> tuple[Float[Tensor, "B K"], Running]:
        columns = range(rewards.value.shape[1])
        if self.ties == "order":
            placed = torch.stack([self._in_order(rewards, column) for column in columns], dim=1)
            return torch.where(rewards.present & (rewards.size > 1), placed, torch.zeros_like(placed)), running
        # Ordered by (group, reward), a member's average rank is half the number of better members of its group, less
        # half the number of worse ones.
        return rewards.compared(torch.stack([self._column(rewards, column) for column in columns], dim=1)), running

    @staticmethod
    def _in_order(rewards: Grouped, column: int) -> Tensor:
        """Returns the same with every rank taken once: sorted by reward and then, stably, by group."""
        group = torch.where(rewards.present[:, column], rewards.index, rewards.num_groups)
        best_first = rewards.value[:, column].argsort(descending=True, stable=True)
        order = best_first[group[best_first].argsort(stable=True)]
        ordered = group[order]
        rank = torch.arange(len(order), device=order.device) - torch.searchsorted(ordered, ordered)
        rank = torch.empty_like(rank).index_copy_(0, order, rank)
        return 1 - 2 * rank.double() / (rewards.size[:, column] - 1).clamp(min=1)

    @staticmethod
    def _column(rewards: Grouped, column: int) -> Tensor:
        present = rewards.present[:, column]
        value = rewards.value[:, column]
        key = torch.stack([torch.where(present, rewards.index, rewards.num_groups).double(), value], dim=1)
        levels, inverse, counts = torch.unique(key, dim=0, return_inverse=True, return_counts=True)
        num_before = counts.cumsum(0) - counts
        group = levels[:, 0].long()
        sizes = counts.new_zeros(rewards.num_groups + 1).index_add(0, group, counts)
        start = sizes.cumsum(0) - sizes
        worse = (num_before - start[group])[inverse]
        better = (sizes[group] - (num_before - start[group]) - counts)[inverse]
        return (worse - better).double() / (sizes[group][inverse] - 1).clamp(min=1)
