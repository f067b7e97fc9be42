"""Behaviour corrections k for what sampled instead of the old policy; each multiplies the surrogate of its decision.

With w_t = exp(lp_old - lp_behaviour) and W their product over the member: TIS min(w_t, C); Seq-TIS min(W, C); MIS w_t
where W <= C, else 0; Seq-MIS W where W <= C, else 0; Geo-RS 1 where lower <= W^(1/n) <= upper, else 0; IcePop w_t where
lower <= w_t <= upper, else 0. Detached.
"""

from __future__ import annotations

import math

from tests.oracles.common import LOG_CLAMP, Given, decisions

Weights = dict[tuple[int, int], float]


def _weights(given: Given) -> Weights:
    assert given.behaviour_log_prob is not None
    members = range(len(given.group))
    return {
        (b, t): math.exp(float(given.old_log_prob[b, t] - given.behaviour_log_prob[b, t]))
        for b in members
        for t in decisions(given, b)
    }


def tis(given: Given, maximum: float = 2.0) -> Weights:
    """Truncated per decision."""
    return {place: min(weight, maximum) for place, weight in _weights(given).items()}


def _log_products(given: Given, weights: Weights) -> list[float]:
    """log W of each member; nothing clamped."""
    return [math.fsum(math.log(weights[b, t]) for t in decisions(given, b)) for b in range(len(given.group))]


def _clamped(log_product: float) -> float:
    return math.exp(min(max(log_product, -LOG_CLAMP), LOG_CLAMP))


def mis(given: Given, maximum: float = 2.0) -> Weights:
    """Kept or dropped by the product over the member, which is clamped at exp(+-80)."""
    weights = _weights(given)
    products = [_clamped(product) for product in _log_products(given, weights)]
    return {(b, t): weight if products[b] <= maximum else 0.0 for (b, t), weight in weights.items()}


def seq_tis(given: Given, maximum: float = 2.0) -> Weights:
    """The product, truncated."""
    weights = _weights(given)
    products = [_clamped(product) for product in _log_products(given, weights)]
    return {(b, t): min(products[b], maximum) for b, t in weights}


def seq_mis(given: Given, maximum: float = 2.0) -> Weights:
    """The product where it is small enough."""
    weights = _weights(given)
    products = [_clamped(product) for product in _log_products(given, weights)]
    return {(b, t): products[b] if products[b] <= maximum else 0.0 for b, t in weights}


def geo_rs(given: Given, lower: float = 0.999, upper: float = 1.001) -> Weights:
    """One or nothing, by the geometric mean."""
    weights = _weights(given)
    means = [
        math.exp(product / max(1, len(decisions(given, b)))) for b, product in enumerate(_log_products(given, weights))
    ]
    return {(b, t): 1.0 if lower <= means[b] <= upper else 0.0 for b, t in weights}


def icepop(given: Given, lower: float = 0.5, upper: float = 5.0) -> Weights:
    """Kept or dropped per decision."""
    return {place: weight if lower <= weight <= upper else 0.0 for place, weight in _weights(given).items()}
