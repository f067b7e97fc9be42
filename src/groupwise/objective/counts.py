"""Who counts in an update: the global numbers that aggregation divides by, taken once per optimiser step."""

from __future__ import annotations

from dataclasses import dataclass
from typing import final

from torch import Tensor

from groupwise.statistics import Reduce


@final
@dataclass(frozen=True)
class Counts:
    """The update as aggregation sees it.

    Args:
        mask: `[B, T]` bool, valid decisions of admitted members.
        admitted: `[B]` bool, members of admitted groups, also those without a valid decision.
        real: `[B]` bool, every member that was sampled; filler is false.
        prompt: `[B]` integers from 0, the member's prompt inside this process's part of the update.
        num_prompts: how many prompts that is.
        reduce: sum over processes.
    """

    mask: Tensor
    admitted: Tensor
    real: Tensor
    prompt: Tensor
    num_prompts: int
    reduce: Reduce

    def total(self, values: Tensor) -> Tensor:
        """The sum over all processes, fp64, at least 1 so that it can divide."""
        return self.reduce(values.double().sum()).clamp(min=1)
