"""The original computation of source 000, for honest ablation (`compat = "verl_rl"`): weights inside the ratio, before
the clip.

The documents show the effect of these differences; no other part of Groupwise uses this file.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import torch
from jaxtyping import Float
from torch import Tensor

from groupwise.objective.aggregate import MemberMean
from groupwise.objective.counts import Counts
from groupwise.objective.decisions import Decisions, Surrogate
from groupwise.objective.trust import Clip, DualClip

if TYPE_CHECKING:
    from groupwise.objective.objective import Objective

_TINY = 1e-8


def incompatible(objective: Objective) -> Iterator[str]:
    """Yields a sentence for each setting that the original code did not have."""
    allowed = {
        "ratio": ("token", "arithmetic"),
        "trust": ("clip", "dual_clip", "gaussian", "asymmetric_clip"),
        "correction": ("none",),
    }
    for slot, kinds in allowed.items():
        kind = getattr(objective, slot).kind
        if kind not in kinds:
            yield (
                f"compat = 'verl_rl' knows {slot}.kind = {', '.join(kinds)}, not {kind!r}; change it, or leave"
                " compat out"
            )
    for link in objective.credit.links():
        if link.kind not in ("temporal_decay", "gradient_adaptive"):
            yield f"compat = 'verl_rl' knows no credit.{link.kind}; leave one of them out"


def compat_weight(objective: Objective, counts: Counts) -> Float[Tensor, "B T"]:
    """Returns `w` of the original: PTRW's loss is the mean over members; elsewhere the configured aggregation with 1e-8
    added to the divisor.
    """
    if objective.trust.kind == "gaussian":
        return MemberMean()(counts)
    weight = objective.aggregation(counts)
    return weight / (1 + _TINY * weight)


def compat_surrogate(objective: Objective, decisions: Decisions) -> Surrogate:
    """Returns `S` of the original: `final = (AMIC's mean of) the smoothed ratio x credit`, then the region.

    PTRW works on the member's mean ratio and mean advantage with its gate differentiated, the asymmetric
    clip works on the mean ratio, picks its width by the mean advantage (zero counts as negative) and has no `min`. The
    original adds 1e-8 to every divisor; so does this, and its values agree to rounding.
    """
    ratio = objective.smoothing(decisions).exp()
    if objective.ratio.kind == "arithmetic":
        ratio = decisions.mean(decisions.masked(ratio)).expand_as(ratio)
    for link in objective.credit.links():
        ratio = ratio * decisions.masked(link(decisions))
    ratio = decisions.masked(ratio)
    trust, advantage = objective.trust, decisions.advantage
    if trust.kind == "gaussian":
        mean_ratio, mean_advantage = _mean(ratio, decisions), _mean(advantage, decisions)
        gate = (-((mean_ratio - 1) ** 2) / (2 * trust.sigma**2)).exp()
        value = (gate * mean_ratio * mean_advantage).expand_as(ratio)
        return Surrogate(value, torch.ones_like(decisions.mask))
    if trust.kind == "asymmetric_clip":
        mean_ratio, mean_advantage = _mean(ratio, decisions), _mean(advantage, decisions)
        width = torch.where(mean_advantage > 0, ratio.new_full((), trust.eps_pos), ratio.new_full((), trust.eps_neg))
        alive = ((mean_ratio >= 1 - width) & (mean_ratio <= 1 + width)).expand_as(decisions.mask)
        return Surrogate(mean_ratio.clamp(1 - width, 1 + width) * advantage, alive)
    assert isinstance(trust, Clip | DualClip)
    bound = trust.bound if trust.kind == "dual_clip" else float("inf")
    clipped = torch.minimum(ratio * advantage, ratio.clamp(1 - trust.low, 1 + trust.high) * advantage)
    value = (
        torch.where((advantage < 0) & (ratio > bound), bound * advantage, clipped) if bound < float("inf") else clipped
    )
    dead = ((advantage > 0) & (ratio > 1 + trust.high)) | (
        (advantage < 0) & ((ratio < 1 - trust.low) | (ratio > bound))
    )
    return Surrogate(value, ~dead)


def _mean(values: Float[Tensor, "B T"], decisions: Decisions) -> Float[Tensor, "B 1"]:
    return decisions.masked(values).sum(1, keepdim=True) / (
        decisions.mask.sum(1, keepdim=True).to(values.dtype) + _TINY
    )
