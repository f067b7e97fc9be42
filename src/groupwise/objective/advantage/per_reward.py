"""Each reward compared by itself, then summed (GDPO): a large reward cannot drown a small one."""

from __future__ import annotations

from typing import Literal, final

import torch
from jaxtyping import Float
from pydantic import Field
from torch import Tensor

from groupwise.objective.bounded import bounded
from groupwise.objective.grouped import Grouped
from groupwise.objective.running import Running
from groupwise.objective.slot import AdvantageSlot


@final
class PerReward(AdvantageSlot):
    """`x_i = sum_k weight_k (R_ik - mean_k) / max(std_k, min_std)` inside the group, then `A = (x - mean(x)) /
    max(std(x), min_std)` over the batch.

    A missing reward leaves its own term alone. A group that is flat in every reward gives exactly 0. Shift- and
    scale-invariant in each reward by itself.

    Example:
        >>> advantage, _ = PerReward(whiten=False)(Grouped.of([1.0, 0.0], [0.5, 0.5]), Running())
        >>> [round(value, 3) for value in advantage[:, 0].tolist()]
        [0.707, -0.707, 0.0, 0.0]

    Source: GDPO, arXiv 2601.05242, equations 4 to 6.
    """

    kind: Literal["per_reward"] = "per_reward"
    ddof: Literal[0, 1] = 1
    min_std: float = Field(default=1e-6, gt=0)
    """Floor under every standard deviation."""
    whiten: bool = True
    """Whiten the sum over the batch."""
    clip: float | None = Field(default=None, gt=0)
    """Largest absolute advantage, after scaling."""

    def summands(self, rewards: Grouped) -> dict[str, Float[Tensor, "B K"]]:
        """Returns the term of each reward in the comparison, `weight_k (R_ik - mean_k) / max(std_k, min_std)`; rewards
        of weight 0 are left out.

        Args:
            rewards: the rewards of whole groups, with `parts`.

        Example:
            >>> list(PerReward().summands(Grouped.of([1.0, 0.0])))
            ['reward']
        """
        summands = {}
        for name, part in rewards.parts.items():
            if (weight := rewards.weights[name]) != 0:
                scaled = part.compared((part.value - part.mean) / part.std(self.ddof).clamp(min=self.min_std))
                summands[name] = (weight * scaled).expand_as(rewards.value)
        return summands

    def __call__(self, rewards: Grouped, running: Running) -> tuple[Float[Tensor, "B K"], Running]:
        summed = torch.zeros_like(rewards.value)
        flat = torch.ones_like(rewards.present)
        for name, summand in self.summands(rewards).items():
            summed = summed + summand
            flat = flat & rewards.parts[name].flat
        if self.whiten:
            _, mean, std = rewards.batch_moments(summed)
            summed = (summed - mean) / std.clamp(min=self.min_std)
        return bounded(torch.where(rewards.present & ~flat, summed, 0.0), self.clip), running
