"""Behaviour corrections k for what sampled instead of the old policy; each multiplies the surrogate of its decision.

With w_t = exp(lp_old - lp_behaviour): TIS min(w_t, C); MIS w_t where the product over the member is at most C, else 0;
IcePop w_t where lower <= w_t <= upper, else 0. Detached.
"""

from __future__ import annotations

import math

from tests.oracles.common import LOG_CLAMP, Given, decisions

Weights = dict[tuple[int, int], float]


def _weights(given: Given) -> Weights:
    assert given.behaviour_log_prob is not None
    members = range(len(given.group))
    return {(b, t): math.exp(float(given.old_log_prob[b, t] - given.behaviour_log_prob[b, t])) for b in members for t in decisions(given, b)}


def tis(given: Given, maximum: float = 2.0) -> Weights:
    """Truncated per decision."""
    return {place: min(weight, maximum) for place, weight in _weights(given).items()}


def mis(given: Given, maximum: float = 2.0) -> Weights:
    """Kept or dropped by the product over the member, which is clamped at exp(+-80)."""
    weights = _weights(given)
    products = []
    for b in range(len(given.group)):
        total = math.fsum(math.log(weights[b, t]) for t in decisions(given, b))
        products.append(math.exp(min(max(total, -LOG_CLAMP), LOG_CLAMP)))
    return {(b, t): weight if products[b] <= maximum else 0.0 for (b, t), weight in weights.items()}


def icepop(given: Given, lower: float = 0.5, upper: float = 5.0) -> Weights:
    """Kept or dropped per decision."""
    return {place: weight if lower <= weight <= upper else 0.0 for place, weight in _weights(given).items()}
