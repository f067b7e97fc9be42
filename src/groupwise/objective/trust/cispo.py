"""Clipped importance weights on the score function (CISPO): no decision ever loses its gradient."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, ClassVar, Literal, final

import torch
from jaxtyping import Float
from pydantic import Field
from torch import Tensor

from groupwise.objective.decisions import Decisions, Surrogate
from groupwise.objective.slot import TrustSlot
from groupwise.objective.stop_gradient import stop_gradient

if TYPE_CHECKING:
    from groupwise.objective.objective import Objective


@final
class Cispo(TrustSlot):
    """`S = sg(min(rho, maximum)) A lp`.

    The weight is bounded, the gradient never zero. `maximum` is absolute: 5.0 as in TRL (verl writes `1 + eps`).

    Example:
        The weight times `A lp`, where `lp = ln(rho) - 1`: -1, `0.5 (-1.693)`, `-2 (0.386)`.

        >>> import torch
        >>> log_ratio, advantage = torch.tensor([[1.0, 0.5, 4.0]]).log(), torch.tensor([[1.0, 1.0, -1.0]])
        >>> decisions = Decisions.of(
        ...     torch.ones(1, 3, dtype=torch.bool), log_ratio - 1, torch.full((1, 3), -1.0), advantage
        ... )
        >>> surrogate = Cispo(maximum=2.0)(log_ratio, decisions)
        >>> [round(value, 3) for value in surrogate.value[0].tolist()], surrogate.alive[0].tolist()
        ([-1.0, -0.847, -0.773], [True, True, True])

    Source: MiniMax-M1, arXiv 2506.13585, equations 4 and 5.
    """

    scope: ClassVar[str] = "decision"
    score_function: ClassVar[bool] = True
    kind: Literal["cispo"] = "cispo"
    maximum: float = Field(default=5.0, gt=0)
    """The largest importance weight; below 1 it scales every decision near the old policy down."""

    def advises(self, objective: Objective) -> Iterator[str]:
        """Yields that a bound below 1 shrinks every weight."""
        if self.maximum < 1:
            yield (
                f"trust.maximum = {self.maximum:g} lies below 1, the weight of a decision that has not moved, so every"
                " weight is shrunk to it; write trust.maximum = 5.0"
            )

    def __call__(self, log_ratio: Float[Tensor, "B T"], decisions: Decisions) -> Surrogate:
        ratio = stop_gradient(log_ratio.exp())
        value = ratio.clamp(max=self.maximum) * decisions.advantage * decisions.log_prob
        capped = decisions.share((ratio > self.maximum) & decisions.good)
        return Surrogate(value, torch.ones_like(decisions.mask), {"cispo_clip_ratio": capped})
