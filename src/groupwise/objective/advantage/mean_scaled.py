"""The reward relative to its group's mean (MaxRL)."""

from __future__ import annotations

from typing import ClassVar, Literal, final

import torch
from jaxtyping import Float
from pydantic import Field
from torch import Tensor

from groupwise.objective.bounded import bounded
from groupwise.objective.grouped import Grouped
from groupwise.objective.running import Running
from groupwise.objective.slot import AdvantageSlot


@final
class MeanScaled(AdvantageSlot):
    """`A_i = (R_i - mean(R)) / mean(R)` over the member's group: with 0/1 rewards, the rarer a success the more it
    weighs (the gradient of log success).

    Rewards must not be negative. A flat group, and one whose mean is 0, gives exactly 0. Scale-invariant, not
    shift-invariant.

    Example:
        One success in four: mean 1/4.

        >>> advantage, _ = MeanScaled()(Grouped.of([1.0, 0.0, 0.0, 0.0]), Running())
        >>> [round(value, 3) for value in advantage[:, 0].tolist()]
        [3.0, -1.0, -1.0, -1.0]

    Source: MaxRL, arXiv 2602.02710, section 3.
    """

    takes_negative: ClassVar[bool] = False
    kind: Literal["mean_scaled"] = "mean_scaled"
    clip: float | None = Field(default=None, gt=0)
    """Largest absolute advantage, after scaling."""

    def __call__(self, rewards: Grouped, running: Running) -> tuple[Float[Tensor, "B K"], Running]:
        if bool((rewards.value < 0).any()):
            raise ValueError(
                "advantage.kind = 'mean_scaled' divides by the group's mean and takes no negative reward; the lowest"
                f" is {float(rewards.value.min()):.6g}; shift the reward, or write advantage.kind = 'centred'"
            )
        divisor = torch.where(rewards.mean > 0, rewards.mean, torch.ones_like(rewards.mean))
        return bounded(rewards.compared((rewards.value - rewards.mean) / divisor), self.clip), running
