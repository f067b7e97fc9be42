"""The reward less the mean of the *other* members (RLOO)."""

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
class LeaveOneOut(AdvantageSlot):
    """`A_i = R_i - mean_{j != i} R_j = n / (n - 1) (R_i - mean(R))`: an unbiased baseline.

    A flat group gives exactly 0. Shift-invariant, and proportional to the scale of the reward.

    Example:
        1 against the mean of 0 and 1/2.

        >>> advantage, _ = LeaveOneOut()(Grouped.of([1.0, 0.0, 0.5]), Running())
        >>> [round(value, 3) for value in advantage[:, 0].tolist()]
        [0.75, -0.75, 0.0]

    Source: RLOO, arXiv 2402.14740, equation 5.
    """

    kind: Literal["leave_one_out"] = "leave_one_out"
    clip: float | None = Field(default=None, gt=0)
    """Largest absolute advantage."""

    def __call__(self, rewards: Grouped, running: Running) -> tuple[Float[Tensor, "B K"], Running]:
        scale = rewards.size / (rewards.size - 1).clamp(min=1)
        return bounded(rewards.compared(scale * (rewards.value - rewards.mean)), self.clip), running
