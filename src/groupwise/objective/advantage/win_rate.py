"""The share of its group that a member beats, reward by reward (Pref-GRPO's win rate, from rewards that score members
one by one).
"""

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
class WinRate(AdvantageSlot):
    """`A_i = (x_i - mean(x)) / max(std(x), min_std)` inside the group, `x_i = sum_k weight_k w_ik`.

    `w_ik` is the share of the others that member i beats in reward k.
    A difference of at most `margin` is a draw, half a win: what a reward cannot tell apart is not learned from. With
    `margin = 0`, rewards may be changed by any increasing map; a missing reward takes no part in its comparisons. A
    flat group gives exactly 0, and so does one in which all win as often.

    Example:
        Rewards 5, 1, 1: win rates 1, 1/4, 1/4, mean 1/2, unbiased standard deviation `sqrt(3)/4`: advantages
        `2/sqrt(3)`, `-1/sqrt(3)`, `-1/sqrt(3)`.

    Source: Pref-GRPO, arXiv 2508.20751, section 3, whose judge compares two images; for such a judge see
    `groupwise.reward.models.win_rate`.
    """

    kind: Literal["win_rate"] = "win_rate"
    margin: float = Field(default=0.0, ge=0)
    """Differences of a reward up to this, in its own unit, are draws."""
    ddof: Literal[0, 1] = 1
    min_std: float = Field(default=1e-6, gt=0)
    """Floor under the standard deviation of the win rates."""
    clip: float | None = Field(default=None, gt=0)
    """Largest absolute advantage, after scaling."""

    def __call__(self, rewards: Grouped, running: Running) -> tuple[Float[Tensor, "B K"], Running]:
        weighted_rewards = [
            (rewards.weights[name], reward) for name, reward in rewards.parts.items() if rewards.weights[name] != 0
        ]
        share = torch.zeros_like(rewards.value)
        for weight, reward in weighted_rewards or [(1.0, rewards)]:
            share = share + weight * torch.where(reward.present, self._won(reward), 0.5)
        compared = rewards.with_value(share)
        scaled = (compared.value - compared.mean) / compared.std(self.ddof).clamp(min=self.min_std)
        return bounded(rewards.compared(compared.compared(scaled)), self.clip), running

    def _won(self, reward: Grouped) -> Tensor:
        """Returns `[B, K]`, the share of the group's other present members that a member beats; 1/2 where there is no
        other.
        """
        order = reward.index.argsort(stable=True)
        ordered = reward.index[order]
        place = torch.empty_like(order).index_copy_(
            0, order, torch.arange(len(order), device=order.device) - torch.searchsorted(ordered, ordered)
        )
        shape = (reward.num_groups, int(place.max()) + 1 if len(place) else 1, reward.value.shape[1])
        # Groups side by side, so that only members of the same one are compared: [P, G, K], then pairs [P, G, G, K].
        value = reward.value.new_zeros(shape).index_put((reward.index, place), reward.value)
        present = torch.zeros(shape, dtype=torch.bool, device=value.device).index_put(
            (reward.index, place), reward.present
        )
        gap = value[:, :, None] - value[:, None]
        won = torch.where(gap > self.margin, 1.0, torch.where(gap < -self.margin, 0.0, 0.5)).double()
        pairs = (present[:, :, None] & present[:, None]).double()
        # Every member draws with itself.
        num_opponents = (pairs.sum(2) - 1).clamp(min=0)
        share = torch.where(num_opponents > 0, ((won * pairs).sum(2) - 0.5) / num_opponents.clamp(min=1), 0.5)
        return share[reward.index, place]
