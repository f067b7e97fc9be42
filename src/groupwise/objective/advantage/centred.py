"""The reward less its group's mean (Dr. GRPO)."""

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
class Centred(AdvantageSlot):
    """`A_i = R_i - mean(R)` over the member's group: no division, so groups with little spread weigh little.

    A flat group gives exactly 0. Shift-invariant, and proportional to the scale of the reward.

    Example:
        >>> advantage, _ = Centred()(Grouped.of([1.0, 0.0, 0.5], [7.0, 7.0]), Running())
        >>> [round(value, 3) for value in advantage[:, 0].tolist()]
        [0.5, -0.5, 0.0, 0.0, 0.0]

    Source: Dr. GRPO, arXiv 2503.20783, equation 1.
    """

    kind: Literal["centred"] = "centred"
    clip: float | None = Field(default=None, gt=0)
    """Largest absolute advantage."""

    def __call__(self, rewards: Grouped, running: Running) -> tuple[Float[Tensor, "B K"], Running]:
        return bounded(rewards.compared(rewards.value - rewards.mean), self.clip), running
