"""The reward less its length-weighted mean: the baseline of least variance (OPO)."""

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
class LengthWeighted(AdvantageSlot):
    """`A_i = R_i - sum_j n_j R_j / sum_j n_j` over the member's group, `n` the valid decisions.

    Longer members have noisier gradients and weigh more in the baseline; members without a decision do not enter it. A
    flat group gives exactly 0. Shift-invariant, and proportional to the scale of the reward.

    Source: OPO, arXiv 2505.23585, equation 7. Right for exactly on-policy updates.
    """

    kind: Literal["length_weighted"] = "length_weighted"
    clip: float | None = Field(default=None, gt=0)
    """Largest absolute advantage."""

    def __call__(self, rewards: Grouped, running: Running) -> tuple[Float[Tensor, "B K"], Running]:
        length = rewards.length.expand_as(rewards.value)
        baseline = rewards.sum(length * rewards.value) / rewards.sum(length).clamp(min=1)
        return bounded(rewards.compared(rewards.value - baseline), self.clip), running
