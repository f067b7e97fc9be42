"""Counts of an update: the global numbers that aggregation divides by, taken once per optimiser step."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import final

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from groupwise.statistics import Reduce, row_count


@final
@dataclass(frozen=True)
class Counts:
    """The update as aggregation sees it.

    Args:
        mask: `[B, T]` bool, valid decisions of admitted members.
        admitted: `[B]` bool, members of admitted groups, also those without a valid decision.
        real: `[B]` bool, every member that counts as sampled, those of dropped groups included.
        prompt: `[B]` integers from 0, the member's prompt inside this process's part of the update.
        num_prompts: the number of prompts in this process's part of the update.
        reduce: sum over processes.
    """

    mask: Bool[Tensor, ...]
    admitted: Bool[Tensor, " B"]
    real: Bool[Tensor, " B"]
    prompt: Int[Tensor, " B"]
    num_prompts: int
    reduce: Reduce

    @cached_property
    def length(self) -> Float[Tensor, ...]:
        """`[B, 1]` fp64, valid decisions of each member."""
        return row_count(self.mask).double()

    def total(self, where: Bool[Tensor, ...]) -> Float[Tensor, ""]:
        """Returns the number of true places over all processes, fp64, at least 1 so that it can divide."""
        return self.reduce(self.length.sum() if where is self.mask else where.sum(dtype=torch.float64)).clamp(min=1)

    def spread(self, weight: Float[Tensor, ...]) -> Float[Tensor, ...]:
        """Returns `[B, T]`: a weight for all, or one a member `[B, 1]`, at its valid decisions; 0 elsewhere."""
        return torch.where(self.mask, weight, 0.0)
