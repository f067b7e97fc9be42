"""A mask by an estimate of the policy's divergence instead of the ratio (DPPO)."""

from __future__ import annotations

from typing import ClassVar, Literal, final

import torch
from pydantic import Field
from torch import Tensor

from groupwise.config import Config
from groupwise.objective.clipping import clip_shares
from groupwise.objective.decisions import Decisions, Surrogate
from groupwise.objective.stop_gradient import stop_gradient

_EDGE = 1e-7


@final
class Dppo(Config):
    """`S = M sg(min(rho, maximum)) A lp`, where `M` is 0 for decisions that move on, away from the sampler, beyond `threshold`.

    With `p` the decision's probability now and `q` under the sampler: a good decision is masked when `p > q` and `D > threshold`, a bad one when
    `p < q` and `D > threshold`. `D` is the divergence of the two-valued distributions (this decision, any other): `|p - q|` for
    `measure = "tv"`, `q ln(q/p) + (1-q) ln((1-q)/(1-p))` for `"kl"`. A rare token may change its ratio a lot, a common one may not: the opposite of a clip.

    Probabilities exist for discrete decisions only. The sampler's are `behaviour_log_prob` where given, else `old_log_prob`.

    Source: arXiv 2602.04879, section 4; the truncation at 20 is its authors' code's.
    """

    scope: ClassVar[str] = "decision"
    reads_probabilities: ClassVar[bool] = True
    kind: Literal["dppo"] = "dppo"
    measure: Literal["tv", "kl"] = "tv"
    threshold: float = Field(default=0.15, gt=0)
    """Largest divergence of a decision that still moves on."""
    maximum: float = Field(default=20.0, ge=1)
    """The largest importance weight."""

    def __call__(self, log_ratio: Tensor, decisions: Decisions) -> Surrogate:
        sampler = decisions.old_log_prob if decisions.behaviour_log_prob is None else decisions.behaviour_log_prob
        now, then = stop_gradient(decisions.log_prob).exp(), sampler.exp()
        divergence = (now - then).abs() if self.measure == "tv" else _binary_kl(then, now)
        beyond = divergence > self.threshold
        too_high = beyond & (decisions.advantage > 0) & (now > then)
        too_low = beyond & (decisions.advantage < 0) & (now < then)
        alive = ~(too_high | too_low)
        weight = stop_gradient(log_ratio.exp()).clamp(max=self.maximum) * alive
        return Surrogate(weight * decisions.advantage * decisions.log_prob, alive, clip_shares(too_low, too_high, decisions.mask))


def _binary_kl(first: Tensor, second: Tensor) -> Tensor:
    """KL of (first, 1 - first) from (second, 1 - second), probabilities kept 1e-7 away from 0 and 1."""
    first, second = first.clamp(_EDGE, 1 - _EDGE), second.clamp(_EDGE, 1 - _EDGE)
    return first * (first / second).log() + (1 - first) * torch.log((1 - first) / (1 - second))
