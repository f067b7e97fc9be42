"""A clip whose width depends on the advantage's sign (source 000, innovation 2.6)."""

from __future__ import annotations

from typing import ClassVar, Literal, final

from jaxtyping import Float
from pydantic import Field
from torch import Tensor

from groupwise.objective.clipping import clip_shares, clipped
from groupwise.objective.decisions import Decisions, Surrogate
from groupwise.objective.slot import TrustSlot


@final
class AsymmetricClip(TrustSlot):
    """`eps = eps_pos if A > 0 else eps_neg`, `S = min(rho A, clip(rho, 1 - eps, 1 + eps) A)`.

    Because of the `min`, only the upper bound acts for good decisions and only the lower one for bad ones: this is
    exactly `clip` with `low = eps_neg, high = eps_pos`, tested as an identity. The source's own form, without `min` and
    with gradient zero on both sides, is `compat = "verl_rl"`.

    Example:
        Good, held at 1.3; bad, held at 0.9; bad and grown, corrected.

        >>> import torch
        >>> log_ratio, advantage = torch.tensor([[1.5, 0.5, 1.5]]).log(), torch.tensor([[1.0, -1.0, -1.0]])
        >>> decisions = Decisions.of(
        ...     torch.ones(1, 3, dtype=torch.bool), log_ratio - 1, torch.full((1, 3), -1.0), advantage
        ... )
        >>> surrogate = AsymmetricClip()(log_ratio, decisions)
        >>> [round(value, 3) for value in surrogate.value[0].tolist()], surrogate.alive[0].tolist()
        ([1.3, -0.9, -1.5], [False, False, True])

    Source: innovation 2.6 of source 000.
    """

    scope: ClassVar[str] = "decision"
    kind: Literal["asymmetric_clip"] = "asymmetric_clip"
    eps_pos: float = Field(default=0.3, gt=0)
    """Width for good decisions."""
    eps_neg: float = Field(default=0.1, gt=0)
    """Width for bad decisions."""

    def __call__(self, log_ratio: Float[Tensor, "B T"], decisions: Decisions) -> Surrogate:
        value, too_low, too_high = clipped(log_ratio, decisions, low=self.eps_neg, high=self.eps_pos)
        statistics = {
            **clip_shares(too_low, too_high, decisions),
            "asymmetric/pos_advantage_ratio": decisions.share(decisions.good),
            "asymmetric/neg_advantage_ratio": decisions.share(decisions.bad),
        }
        return Surrogate(value, ~(too_low | too_high), statistics)
