"""Tapered off-policy REINFORCE (TOPR): good members as they are, bad ones by a ratio that may only fall."""

from __future__ import annotations

from typing import ClassVar, Literal, final

import torch
from jaxtyping import Float
from torch import Tensor

from groupwise.objective.decisions import Decisions, Surrogate
from groupwise.objective.slot import TrustSlot
from groupwise.objective.stop_gradient import stop_gradient
from groupwise.statistics import Mean


@final
class Topr(TrustSlot):
    """`S = A lp` for `A >= 0`, `S = sg(min(rho, 1)) A lp` for `A < 0`. The paper's `rho` is the member's product
    (`ratio.kind = "product"`).

    No decision loses its gradient, but a bad member that the policy has left is hardly pushed further.

    Example:
        `lp = ln(rho) - 1`: a good decision has weight 1, a bad one `min(rho, 1)`.

        >>> import torch
        >>> log_ratio, advantage = torch.tensor([[0.5, 0.5, 4.0]]).log(), torch.tensor([[1.0, -1.0, -1.0]])
        >>> decisions = Decisions.of(
        ...     torch.ones(1, 3, dtype=torch.bool), log_ratio - 1, torch.full((1, 3), -1.0), advantage
        ... )
        >>> surrogate = Topr()(log_ratio, decisions)
        >>> [round(value, 3) for value in surrogate.value[0].tolist()], surrogate.alive[0].tolist()
        ([-1.693, 0.847, -0.386], [True, True, True])

    Source: arXiv 2503.14286, equation 9 with `a+ = b+ = 1`, `a- = 0, b- = 1`.
    """

    scope: ClassVar[str] = "decision"
    score_function: ClassVar[bool] = True
    kind: Literal["topr"] = "topr"

    def __call__(self, log_ratio: Float[Tensor, "B T"], decisions: Decisions) -> Surrogate:
        taper = stop_gradient(log_ratio.clamp(max=0).exp())
        weight = torch.where(decisions.bad, taper, torch.ones_like(taper))
        value = weight * decisions.advantage * decisions.log_prob
        return Surrogate(
            value, torch.ones_like(decisions.mask), {"topr/taper_mean": Mean.of(taper, decisions.mask & decisions.bad)}
        )
