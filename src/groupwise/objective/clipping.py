"""The pessimistic clip that several trust regions are made of."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from groupwise.objective.decisions import Decisions
from groupwise.objective.known_gradient import known_gradient
from groupwise.statistics import Statistic, as_float, logical_and


def clipped(
    log_ratio: Float[Tensor, "B T"], decisions: Decisions, low: float, high: float
) -> tuple[Float[Tensor, "B T"], Bool[Tensor, "B T"], Bool[Tensor, "B T"]]:
    """Returns `min(rho A, clip(rho, 1 - low, 1 + high) A)` with the places where it is clipped.

    The edge belongs to the region: at exactly `1 + high`, or `1 - low`, the gradient is that of the unclipped term, as
    in the derivatives of `torch.min` and `torch.clamp`.

    Args:
        log_ratio: `[B, T]` nats, with gradient.
        decisions: the decisions, whose advantages are read.
        low, high: the distances from 1 by which the ratio may fall and rise.

    Returns:
        `S [B, T]`; where `A < 0` and `rho < 1 - low`; where `A > 0` and `rho > 1 + high`. Those two carry no gradient.

    Example:
        >>> log_ratio = torch.tensor([[1.5, 1.5]]).log()
        >>> decisions = Decisions.of(
        ...     torch.ones(1, 2, dtype=torch.bool), log_ratio, torch.zeros(1, 2), torch.tensor([[1.0, -1.0]])
        ... )
        >>> value, too_low, too_high = clipped(log_ratio, decisions, 0.2, 0.25)
        >>> value.tolist(), too_high.tolist()
        ([[1.25, -1.5]], [[True, False]])
    """
    ratio, advantage = log_ratio.detach().exp(), decisions.advantage
    too_low = logical_and(decisions.bad, ratio < 1 - low)
    too_high = logical_and(decisions.good, ratio > 1 + high)
    alive = ~(too_low | too_high)
    plain = ratio * advantage
    clamped = ratio.clamp(1 - low, 1 + high).mul_(advantage)
    return (
        known_gradient(log_ratio, torch.minimum(plain, clamped), plain * as_float(alive, plain.dtype)),
        too_low,
        too_high,
    )


def clip_shares(
    too_low: Bool[Tensor, "B T"], too_high: Bool[Tensor, "B T"], decisions: Decisions
) -> Mapping[str, Statistic]:
    """Returns the shares of the valid decisions that are clipped, under TRL's names.

    Args:
        too_low, too_high: `[B, T]` bool, the clipped decisions as `clipped` returns them.

    Example:
        >>> zeros, too_low = torch.zeros(1, 4), torch.tensor([[True, False, False, False]])
        >>> metrics = clip_shares(
        ...     too_low, ~too_low & False, Decisions.of(torch.ones(1, 4, dtype=torch.bool), zeros, zeros, zeros)
        ... )
        >>> metrics["clip_ratio/low_mean"].finish("low")
        {'low': 0.25}
    """
    return {
        "clip_ratio/low_mean": decisions.share(too_low),
        "clip_ratio/high_mean": decisions.share(too_high),
        "clip_ratio/region_mean": decisions.share(lambda: too_low | too_high),
    }
