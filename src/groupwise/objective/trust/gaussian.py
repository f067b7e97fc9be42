"""A soft trust region: a Gaussian gate on the ratio, PTRW (source 000, innovation 2.4)."""

from __future__ import annotations

from typing import ClassVar, Literal, final

from jaxtyping import Float
from pydantic import Field
from torch import Tensor

from groupwise.objective.decisions import Decisions, Surrogate
from groupwise.objective.slot import TrustSlot
from groupwise.objective.stop_gradient import stop_gradient

_DEAD_BELOW = 0.01


@final
class Gaussian(TrustSlot):
    """`S = sg(phi) rho A` with `phi = exp(-(rho - 1)^2 / (2 sigma^2))`.

    The gate is not differentiated: with it, `d(phi rho) / d rho` changes sign at `rho = (1 + sqrt(1 + 4 sigma^2)) / 2`,
    1.0385 for sigma 0.2, and a bad decision that grew would be *reinforced*. The region is not pessimistic: a bad
    decision at ratio 2 has gate 4e-6 and is silenced, not corrected. Gates below 0.01 count as without gradient in
    `zero_gradient_fraction`.

    Example:
        Gates 1, `exp(-1/2)` one sigma away, 4e-6 at five.

        >>> import torch
        >>> log_ratio, advantage = torch.tensor([[1.0, 1.2, 2.0]]).log(), torch.tensor([[1.0, 1.0, -1.0]])
        >>> decisions = Decisions.of(
        ...     torch.ones(1, 3, dtype=torch.bool), log_ratio - 1, torch.full((1, 3), -1.0), advantage
        ... )
        >>> surrogate = Gaussian()(log_ratio, decisions)
        >>> [round(value, 3) for value in surrogate.value[0].tolist()], surrogate.alive[0].tolist()
        ([1.0, 0.728, -0.0], [True, True, False])

    Source: innovation 2.4 of source 000.
    """

    scope: ClassVar[str] = "decision"
    kind: Literal["gaussian"] = "gaussian"
    sigma: float = Field(default=0.2, gt=0)
    """Width of the gate, in units of the ratio; infinity is no trust region."""

    def __call__(self, log_ratio: Float[Tensor, "B T"], decisions: Decisions) -> Surrogate:
        ratio = log_ratio.exp()
        gate = stop_gradient((-0.5 * ((ratio - 1) / self.sigma).square()).exp())
        value = gate * ratio * decisions.advantage
        statistics = {"ptrw/trust_weights_mean": decisions.average(gate), "ptrw/loss_mean": decisions.average(-value)}
        return Surrogate(value, gate >= _DEAD_BELOW, statistics)
