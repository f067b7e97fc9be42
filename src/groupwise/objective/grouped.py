"""Statistics of rewards inside groups, in fp64, from which advantages with a group baseline are computed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import final

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from groupwise.statistics import Reduce, sum_over_one_process

FP32_NOISE = 4 * 2.0**-23
"""Four digits of fp32 at its end: the part of a reward by which a model that computes in fp32 may miss."""


@final
@dataclass(frozen=True)
class Grouped:
    """Rewards with their groups. Shapes `[B, K]`: `K = 1`, or `T` for reward maps, which are compared place by place.

    Args:
        value: fp64 rewards, 0 where missing.
        present: bool, false where a reward is missing.
        index: `[B]` integers from 0, the member's group.
        num_groups: the number of groups.
        length: `[B, 1]` fp64, valid decisions of each member.
        parts: each reward by itself, for advantages that treat them apart.
        weights: the weight of each part.
        reduce: sum over processes, for statistics of the whole batch.
        history: `[B, H]` fp64, earlier rewards of the member's prompt, oldest first, NaN where there are fewer.
        rounding: rewards of a group that differ by no more than this part of the largest are equal.
    """

    value: Float[Tensor, "B K"]
    present: Bool[Tensor, "B K"]
    index: Int[Tensor, " B"]
    num_groups: int
    length: Float[Tensor, "B 1"]
    parts: Mapping[str, Grouped] = field(default_factory=dict)
    weights: Mapping[str, float] = field(default_factory=dict)
    reduce: Reduce = sum_over_one_process
    history: Float[Tensor, "B H"] | None = None
    rounding: float = FP32_NOISE

    @staticmethod
    def of(*groups: Sequence[float]) -> Grouped:
        """Returns a single reward for members of one decision, from plain lists.

        Args:
            groups: the rewards of each group's members.

        Example:
            >>> Grouped.of([1.0, 0.0], [0.5, 0.5]).flat[:, 0].tolist()
            [False, False, True, True]
        """
        value = torch.tensor([[reward] for group in groups for reward in group], dtype=torch.float64)
        index = torch.tensor([place for place, group in enumerate(groups) for _ in group])
        single = Grouped(value, torch.ones_like(value, dtype=torch.bool), index, len(groups), torch.ones_like(value))
        return replace(single, parts={"reward": single}, weights={"reward": 1.0})

    def _sum(self, values: Float[Tensor, "B K"]) -> Float[Tensor, "P K"]:
        """Returns `[P, K]`, sums over the present members of each group."""
        present_values = torch.where(self.present, values, torch.zeros_like(values))
        return present_values.new_zeros(self.num_groups, values.shape[1]).index_add(0, self.index, present_values)

    def sum(self, values: Float[Tensor, "B K"]) -> Float[Tensor, "B K"]:
        """Returns `[B, K]`, the sum of `values` over each member's group."""
        return self._sum(values)[self.index]

    @cached_property
    def group_size(self) -> Float[Tensor, "P K"]:
        """`[P, K]`, members whose reward is present."""
        return self._sum(torch.ones_like(self.value))

    @cached_property
    def size(self) -> Float[Tensor, "B K"]:
        """`[B, K]`, members of the own group whose reward is present."""
        return self.group_size[self.index]

    @cached_property
    def mean(self) -> Float[Tensor, "B K"]:
        """`[B, K]`, the group's mean."""
        return self.sum(self.value) / self.size.clamp(min=1)

    def std(self, ddof: int) -> Float[Tensor, "B K"]:
        """Returns `[B, K]`, the group's standard deviation; 0 where fewer than `ddof + 1` members are present."""
        squares = self.sum((self.value - self.mean).square())
        return (squares / (self.size - ddof).clamp(min=1)).sqrt()

    def _extreme(self, reduction: str) -> Float[Tensor, "P K"]:
        fill = float("inf") if reduction == "amin" else float("-inf")
        present_values = torch.where(self.present, self.value, torch.full_like(self.value, fill))
        index = self.index[:, None].expand_as(present_values)
        return present_values.new_full((self.num_groups, present_values.shape[1]), fill).scatter_reduce(
            0, index, present_values, reduction
        )

    @cached_property
    def lowest(self) -> Float[Tensor, "P K"]:
        """`[P, K]`, infinity for a group without a reward."""
        return self._extreme("amin")

    @cached_property
    def highest(self) -> Float[Tensor, "P K"]:
        """`[P, K]`, minus infinity for a group without a reward."""
        return self._extreme("amax")

    @cached_property
    def group_flat(self) -> Bool[Tensor, "P K"]:
        """`[P, K]` bool: all present rewards equal within rounding, or fewer than two present.

        Numbers below the smallest normal one have no digits, and are equal to 0.
        """
        rounding = (self.rounding * torch.maximum(self.highest.abs(), self.lowest.abs())).clamp(
            min=torch.finfo(torch.float64).tiny
        )
        return (self.highest - self.lowest <= rounding) | (self.group_size < 2)

    @cached_property
    def flat(self) -> Bool[Tensor, "B K"]:
        """`[B, K]` bool: the member's group gives no comparison."""
        return self.group_flat[self.index]

    def compared(self, advantage: Float[Tensor, "B K"]) -> Float[Tensor, "B K"]:
        """Returns `advantage` where the group gives a comparison and the reward is present, exactly 0 elsewhere."""
        return torch.where(self.present & ~self.flat, advantage, torch.zeros_like(advantage))

    def batch_moments(
        self, values: Float[Tensor, "B K"], ddof: int = 1
    ) -> tuple[Float[Tensor, ""], Float[Tensor, ""], Float[Tensor, ""]]:
        """Returns count, mean and standard deviation of `values` over all present rewards of all processes."""
        present_values = torch.where(self.present, values, torch.zeros_like(values))
        count, total = self.reduce(torch.stack([self.present.double().sum(), present_values.sum()]))
        mean = total / count.clamp(min=1)
        squares = self.reduce(torch.where(self.present, (values - mean).square(), torch.zeros_like(values)).sum())
        return count, mean, (squares / (count - ddof).clamp(min=1)).sqrt()

    def with_value(self, value: Float[Tensor, "B K"]) -> Grouped:
        """Returns the groups with other rewards."""
        return replace(self, value=torch.where(self.present, value, torch.zeros_like(value)))
