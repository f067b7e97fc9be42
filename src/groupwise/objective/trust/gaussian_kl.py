"""A mask by the exact divergence of a Gaussian transition from the one that sampled (Flow-DPPO)."""

from __future__ import annotations

from typing import ClassVar, Literal, final

from jaxtyping import Float
from pydantic import Field
from torch import Tensor

from groupwise.objective.clipping import clip_shares
from groupwise.objective.decisions import Decisions, Surrogate
from groupwise.objective.slot import TrustSlot
from groupwise.objective.stop_gradient import stop_gradient
from groupwise.statistics import as_float


@final
class GaussianKl(TrustSlot):
    """`S = M rho A`, where `M` is 0 for a decision that moves on beyond `threshold`: a good one with `rho > 1`, a bad
    one with `rho < 1`, and `KL(old || pi) >= threshold`.

    The divergence is exact and has no noise, where the ratio of one sample has: `|mu - mu_old|^2 / (2 sigma^2)`, in the
    unit of the domain's log-probs (a mean over elements by default). A decision that moves back is always corrected.

    Example:
        A good and a bad decision of ratio 1.5, both beyond the threshold: the bad one moves back and is corrected.

        >>> import torch
        >>> log_ratio = torch.full((2, 1), 1.5).log()
        >>> decisions = Decisions.of(
        ...     torch.ones(2, 1, dtype=torch.bool), log_ratio, torch.zeros(2, 1), torch.tensor([[1.0], [-1.0]])
        ... )
        >>> from dataclasses import replace
        >>> GaussianKl()(log_ratio, replace(decisions, old_divergence=torch.full((2, 1), 1e-3))).alive.tolist()
        [[False], [True]]

    Source: Flow-DPPO, arXiv 2606.11025, equations 14 and 18; the threshold of its code, on means over elements.
    """

    scope: ClassVar[str] = "decision"
    reads: ClassVar[frozenset[str]] = frozenset({"old_divergence"})
    kind: Literal["gaussian_kl"] = "gaussian_kl"
    threshold: float = Field(default=1e-5, gt=0)
    """The least divergence, in nats of a decision, at which a decision that moves on is left out."""

    def __call__(self, log_ratio: Float[Tensor, "B T"], decisions: Decisions) -> Surrogate:
        assert decisions.old_divergence is not None
        level = stop_gradient(log_ratio)
        beyond = stop_gradient(decisions.old_divergence) >= self.threshold
        too_high = beyond & decisions.good & (level > 0)
        too_low = beyond & decisions.bad & (level < 0)
        alive = ~(too_high | too_low)
        value = log_ratio.exp() * decisions.advantage * as_float(alive, log_ratio.dtype)
        return Surrogate(value, alive, clip_shares(too_low, too_high, decisions))
