"""Statistics of rewards inside groups, in fp64, from which advantages with a group baseline are computed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, final

import torch
from jaxtyping import Bool, Float, Int
from pydantic import model_validator
from torch import Tensor

from groupwise.config import Config
from groupwise.statistics import Reduce, sum_over_one_process


@final
@dataclass(frozen=True)
class Deviation:
    """Predictions minus their target, on `N` noised copies `a x0 + b e` of samples with `D` elements each.

    The target is the one of supervised training: `e - x0` for a flow, `e`, `a e - b x0` or `x0` otherwise.

    Args:
        live: `[N, D]`, of the policy being trained, with gradient.
        old: `[N, D]`, of the policy that sampled, without gradient.
        time: `[N]` in (0, 1], the noise level of a flow, the share of the training steps otherwise.
        clean_scale: `[N]`, the change of the predicted sample `x0` for a change of the prediction by one: `b` for a
            flow and `a e - b x0`, `b / a` for `e`, 1 for `x0`.

    Example:
        >>> import torch
        >>> zeros = torch.zeros(1, 2)
        >>> Deviation(zeros + 1.0, zeros, torch.tensor([0.5]), torch.tensor([0.5])).clean().tolist()
        [[0.5, 0.5]]
    """

    live: Float[Tensor, "N D"]
    old: Float[Tensor, "N D"]
    time: Float[Tensor, " N"]
    clean_scale: Float[Tensor, " N"]

    def clean(self, share: float = 1.0) -> Float[Tensor, "N D"]:
        """Returns the deviation of the predicted sample `x0`, up to its sign, of the prediction `share` of the way from
        the old policy's to the live one's. A share below 0 lies on the other side of the old policy.
        """
        return self.clean_scale[:, None] * (share * self.live + (1 - share) * self.old)


@final
class Running(Config):
    """Exponential averages of the batch's mean, its standard deviation, and the standard deviation of rewards less
    their group's mean.

    `s <- decay s + (1 - decay) x`, `w <- decay w + (1 - decay)`, value `s / w`: the first batch gives exactly its own
    numbers.

    Example:
        >>> running = (
        ...     Running()
        ...     .follow(mean=1.0, std=2.0, centred_std=0.5, decay=0.9)
        ...     .follow(mean=1.0, std=4.0, centred_std=0.5, decay=0.9)
        ... )
        >>> round(running.mean, 6), round(running.std, 6), round(running.centred_std, 6)
        (1.0, 3.052632, 0.5)
    """

    mean_sum: float = 0.0
    std_sum: float = 0.0
    centred_std_sum: float = 0.0
    weight: float = 0.0

    @model_validator(mode="before")
    @classmethod
    def _with_centred(cls, table: Any) -> Any:
        # Older checkpoints hold a single deviation, by which their advantages were scaled: it is taken for both.
        if isinstance(table, Mapping) and "std_sum" in table:
            return {"centred_std_sum": table["std_sum"], **table}
        return table

    def follow(self, mean: float, std: float, centred_std: float, decay: float) -> Running:
        """Returns the average after one more batch."""
        return Running(
            mean_sum=decay * self.mean_sum + (1 - decay) * mean,
            std_sum=decay * self.std_sum + (1 - decay) * std,
            centred_std_sum=decay * self.centred_std_sum + (1 - decay) * centred_std,
            weight=decay * self.weight + (1 - decay),
        )

    @property
    def mean(self) -> float:
        return self.mean_sum / self.weight if self.weight > 0 else 0.0

    @property
    def std(self) -> float:
        return self.std_sum / self.weight if self.weight > 0 else 0.0

    @property
    def centred_std(self) -> float:
        return self.centred_std_sum / self.weight if self.weight > 0 else 0.0


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
