"""VESPO: a gamma-shaped weight on the member's importance ratio."""

from __future__ import annotations

import math

import pytest
from pydantic import ValidationError
from tests.objective.small import close, gradient, member_ratios

from groupwise.objective.ratio import Product
from groupwise.objective.trust import Vespo
from groupwise.statistics import finish


def test_weight_by_sign() -> None:
    # W = 2 and 1/2. A >= 0: 4 e^-3 and e^1.5 / 4; A < 0: 8 e^-2 and e / 8.
    decisions = member_ratios(
        [4.0, 0.5], [0.5, 1.0], [4.0, 0.5], [0.5, 1.0], [4.0, 0.5], advantage=[1.0, 1.0, -1.0, -1.0, 0.0], old=-3.0
    )
    surrogate = Vespo()(Product()(decisions.log_ratio, decisions), decisions)
    weights = [4 * math.exp(-3.0), math.exp(1.5) / 4, 8 * math.exp(-2.0), math.exp(1.0) / 8, 4 * math.exp(-3.0)]
    close(
        gradient(surrogate.value, decisions),
        [[weights[0]] * 2, [weights[1]] * 2, [-weights[2]] * 2, [-weights[3]] * 2, [0.0] * 2],
    )
    assert finish(surrogate.statistics) == pytest.approx({"vespo/weight_mean": sum(weights) / 5})


def test_the_weight_is_one_at_ratio_one_and_zero_far_away() -> None:
    decisions = member_ratios([1.0], [math.exp(50.0)], [math.exp(-50.0)], advantage=[1.5, 1.0, -1.0], old=-60.0)
    surrogate = Vespo()(decisions.log_ratio, decisions)
    close(gradient(surrogate.value, decisions), [[1.5], [0.0], [0.0]])
    assert surrogate.alive.tolist() == [[True], [False], [False]]


def test_clamped_in_log_space() -> None:
    # At the limit 1: ln w = -1, phi = exp(3 - 2 - 3/e).
    decisions = member_ratios([math.exp(-5.0)], advantage=1.0)
    close(gradient(Vespo(limit=1.0)(decisions.log_ratio, decisions).value, decisions), [[math.exp(1 - 3 / math.e)]])


def test_exponents_are_positive() -> None:
    with pytest.raises(ValidationError, match="k_neg"):
        Vespo(k_neg=0.0)
