"""The arithmetic mean of a member's ratios: AMIC (source 000, innovation 2.3)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar, Literal, final

import torch
from jaxtyping import Float
from torch import Tensor

from groupwise.objective.decisions import Decisions
from groupwise.objective.member_ratio import MemberRatio
from groupwise.statistics import Mean, Statistic, Variance


@final
class Arithmetic(MemberRatio):
    """`rho = (1/n) sum_t r'_t` over a member's valid decisions, broadcast; 1 for a member without any.

    With `gradient = "sequence"` decision `t` gets the share `r'_t / (n rho)` of the member's gradient; with `"token"`
    each decision keeps its own gradient and that weighting by `r'_t` is dropped (a stated deviation, which lets a
    credit act).

    Example:
        >>> import torch
        >>> log_ratio = torch.tensor([[0.5, 2.0, 2.0]]).log()
        >>> decisions = Decisions.of(torch.ones(1, 3, dtype=torch.bool), log_ratio, torch.zeros(1, 3), torch.ones(1, 3))
        >>> [round(value, 3) for value in Arithmetic()(log_ratio, decisions).exp()[0].tolist()]
        [1.5, 1.5, 1.5]

    Source: innovation 2.3 of source 000.
    """

    averages: ClassVar[bool] = True
    kind: Literal["arithmetic"] = "arithmetic"

    def level(self, log_ratio: Float[Tensor, "B T"], decisions: Decisions) -> Float[Tensor, "B 1"]:
        mean = decisions.mean(log_ratio.exp())
        return torch.where(decisions.occupied, mean, torch.ones_like(mean)).log()

    def measure(self, log_level: Float[Tensor, "B T"], decisions: Decisions) -> Mapping[str, Statistic]:
        """Returns `amic/sequence_weights_variance` over members, `amic/avg_sequence_length` in decisions."""
        # One number a member, at every valid decision.
        weight = (
            decisions.masked(log_level.detach(), fill=torch.finfo(log_level.dtype).min)
            .amax(1, keepdim=True)
            .double()
            .exp()
        )
        return {
            "amic/sequence_weights_variance": Variance.about_one(weight, decisions.occupied),
            "amic/avg_sequence_length": Mean.of(decisions.count, decisions.occupied),
        }
