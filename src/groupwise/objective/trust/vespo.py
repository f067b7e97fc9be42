"""A smooth reshaping of the member's importance weight (VESPO)."""

from __future__ import annotations

from typing import ClassVar, Literal, final

import torch
from jaxtyping import Float
from pydantic import Field
from torch import Tensor

from groupwise.objective.decisions import Decisions, Surrogate
from groupwise.objective.slot import TrustSlot
from groupwise.objective.stop_gradient import stop_gradient

_DEAD_BELOW = 0.01


@final
class Vespo(TrustSlot):
    """`S = sg(phi(w)) A lp`, `phi(w) = exp(lambda + k ln w - lambda w)`, with `(k, lambda)` by the advantage's sign;
    `w` is the member's product.

    `phi(1) = 1`; it falls to zero for small and large `w`. `ln w` is clamped to `+-limit`. Weights below 0.01 count as
    without gradient.

    Example:
        `phi(2) = exp(3 + 2 ln 2 - 6) = 0.199`, times `lp = ln(2) - 1`; at 8 nothing is left.

        >>> import torch
        >>> log_ratio, advantage = torch.tensor([[1.0, 2.0, 8.0]]).log(), torch.tensor([[1.0, 1.0, 1.0]])
        >>> decisions = Decisions.of(
        ...     torch.ones(1, 3, dtype=torch.bool), log_ratio - 1, torch.full((1, 3), -1.0), advantage
        ... )
        >>> surrogate = Vespo()(log_ratio, decisions)
        >>> [round(value, 3) for value in surrogate.value[0].tolist()], surrogate.alive[0].tolist()
        ([-1.0, -0.061, 0.0], [True, True, False])

    Source: arXiv 2602.10693, section 3.
    """

    scope: ClassVar[str] = "decision"
    score_function: ClassVar[bool] = True
    kind: Literal["vespo"] = "vespo"
    k_pos: float = Field(default=2.0, gt=0)
    lambda_pos: float = Field(default=3.0, gt=0)
    k_neg: float = Field(default=3.0, gt=0)
    lambda_neg: float = Field(default=2.0, gt=0)
    limit: float = Field(default=20.0, gt=0)
    """Bound on `|ln w|`, in nats."""

    def __call__(self, log_ratio: Float[Tensor, "B T"], decisions: Decisions) -> Surrogate:
        good = decisions.advantage >= 0
        k, decay = (
            torch.where(good, log_ratio.new_full((), positive), log_ratio.new_full((), negative))
            for positive, negative in ((self.k_pos, self.k_neg), (self.lambda_pos, self.lambda_neg))
        )
        log_weight = log_ratio.clamp(-self.limit, self.limit)
        gate = stop_gradient((decay + k * log_weight - decay * log_weight.exp()).exp())
        value = gate * decisions.advantage * decisions.log_prob
        return Surrogate(value, gate >= _DEAD_BELOW, {"vespo/weight_mean": decisions.average(gate)})
