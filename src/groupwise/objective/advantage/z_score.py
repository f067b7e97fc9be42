"""The group z-score (GRPO)."""

from __future__ import annotations

from typing import Literal, final

from jaxtyping import Float
from pydantic import Field
from torch import Tensor

from groupwise.objective.bounded import bounded
from groupwise.objective.grouped import Grouped
from groupwise.objective.running import Running
from groupwise.objective.slot import AdvantageSlot


@final
class ZScore(AdvantageSlot):
    """`A_i = (R_i - mean(R)) / max(std(R), min_std)` over the member's group.

    A flat group gives exactly 0. Shift-invariant; scale-invariant while the standard deviation is above `min_std`.
    In a group of two that differ the advantage is +-0.707 (+-1 with `ddof = 0`), by however much they do.

    Example:
        Rewards 0, 0, 1, 1: mean 1/2, unbiased standard deviation `1/sqrt(3)`, so the advantage is `-+sqrt(3)/2`.

    Source: GRPO, arXiv 2402.03300, section 4.1.2.
    """

    kind: Literal["z_score"] = "z_score"
    ddof: Literal[0, 1] = 1
    """1 for the unbiased standard deviation, 0 for the population's (source 003)."""
    min_std: float = Field(default=1e-6, gt=0)
    """Floor under the standard deviation, in units of reward."""
    clip: float | None = Field(default=None, gt=0)
    """Largest absolute advantage, after scaling."""

    def __call__(self, rewards: Grouped, running: Running) -> tuple[Float[Tensor, "B K"], Running]:
        scaled = (rewards.value - rewards.mean) / rewards.std(self.ddof).clamp(min=self.min_std)
        return bounded(rewards.compared(scaled), self.clip), running
