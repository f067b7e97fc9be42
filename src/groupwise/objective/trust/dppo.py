"""A mask by an estimate of the policy's divergence instead of the ratio (DPPO)."""

from __future__ import annotations

import math
from typing import ClassVar, Literal, final

from jaxtyping import Float
from pydantic import Field
from torch import Tensor

from groupwise.objective.clipping import clip_shares
from groupwise.objective.decisions import Decisions, Surrogate
from groupwise.objective.slot import TrustSlot
from groupwise.objective.stop_gradient import stop_gradient

_SMALLEST = 1e-12


@final
class Dppo(TrustSlot):
    """`S = M sg(min(pi / mu, maximum)) A lp`, where `M` is 0 for decisions that move on, away from the sampler `mu`,
    beyond `threshold`.

    A good decision is masked when `pi > mu` and `D > threshold`, a bad one when `pi < mu` and `D > threshold`. `D` is
    the divergence of the two-valued distributions (this decision, any other): `|pi - mu|` for `measure = "tv"`, `mu
    ln(mu/pi) + (1-mu) ln((1-mu)/(1-pi))` for `"kl"`. A rare token may change its ratio a lot, a common one may not: the
    opposite of a clip.

    The region is anchored to what really sampled: `mu` is `behaviour_log_prob` where given, else `old_log_prob`. It
    weighs each decision by itself, so it takes token ratios, no smoothing and no behaviour correction. "Any other"
    decision exists where decisions are discrete: a density is no probability, and may be above one, where `D` is not
    defined.

    Example:
        Probability .5 under the sampler, .7 now, threshold .15: masked if good, weighted by 1.4 if bad.

        >>> import torch
        >>> log_prob, sampler_log_prob = torch.full((2, 1), 0.7).log(), torch.full((2, 1), 0.5).log()
        >>> decisions = Decisions.of(
        ...     torch.ones(2, 1, dtype=torch.bool), log_prob, sampler_log_prob, torch.tensor([[1.0], [-1.0]])
        ... )
        >>> Dppo()(log_prob - sampler_log_prob, decisions).alive.tolist()
        [[False], [True]]

    Source: arXiv 2602.04879, section 4; thresholds .15 (tv) and .05 (kl) are its authors' runs', the truncation at 20
    (section 5.4) is verl's.
    """

    scope: ClassVar[str] = "decision"
    uses: ClassVar[frozenset[str]] = frozenset({"behaviour_log_prob"})
    score_function: ClassVar[bool] = True
    per_decision: ClassVar[str | None] = "probability"
    weighs_behaviour: ClassVar[bool] = True
    discrete_only: ClassVar[str | None] = (
        "a density has none to compare with all other decisions'; write trust.kind = 'clip', or another that reads"
        " ratios"
    )
    kind: Literal["dppo"] = "dppo"
    measure: Literal["tv", "kl"] = "tv"
    threshold: float = Field(default=0.15, gt=0)
    """Largest divergence of a decision that still moves on."""
    maximum: float = Field(default=20.0, ge=1)
    """The largest importance weight."""

    def __call__(self, log_ratio: Float[Tensor, "B T"], decisions: Decisions) -> Surrogate:
        acted = decisions.acted
        sampler = acted.old_log_prob if acted.behaviour_log_prob is None else acted.behaviour_log_prob
        live = stop_gradient(decisions.log_prob)
        divergence = (live.exp() - sampler.exp()).abs() if self.measure == "tv" else _binary_kl(sampler, live)
        beyond = divergence > self.threshold
        too_high = beyond & decisions.good & (live > sampler)
        too_low = beyond & decisions.bad & (live < sampler)
        alive = ~(too_high | too_low)
        weight = (live - sampler).clamp(max=math.log(self.maximum)).exp() * alive
        return Surrogate(
            weight * decisions.advantage * decisions.log_prob, alive, clip_shares(too_low, too_high, decisions)
        )


def _binary_kl(log_p: Float[Tensor, "B T"], log_q: Float[Tensor, "B T"]) -> Float[Tensor, "B T"]:
    """Computes the KL of (p, 1 - p) from (q, 1 - q) for log-probs `ln p`, `ln q`; `1 - p` and `1 - q` are taken to be
    at least 1e-12.
    """
    complement_p, complement_q = (-value.expm1() for value in (log_p, log_q))
    complement_term = complement_p * (complement_p.clamp(min=_SMALLEST) / complement_q.clamp(min=_SMALLEST)).log()
    return log_p.exp() * (log_p - log_q) + complement_term
