"""TOPR: good members with weight one, bad ones by a ratio that may only fall."""

from __future__ import annotations

from tests.objective.small import close, gradient, member_ratios

from groupwise.objective.ratio import Product
from groupwise.objective.trust import Topr
from groupwise.statistics import finish


def test_weights_of_members() -> None:
    # Products 0.5, 4 and 0.25, 4: the good members weigh 1, the bad ones 0.25 and 1, which alone are in the metric.
    decisions = member_ratios(
        [0.5, 1.0], [4.0, 1.0], [0.5, 0.5], [4.0, 1.0], advantage=[2.0, 2.0, -2.0, -2.0], old=-3.0
    )
    surrogate = Topr()(Product()(decisions.log_ratio, decisions), decisions)
    weight = [[2.0, 2.0], [2.0, 2.0], [-0.5, -0.5], [-2.0, -2.0]]
    close(gradient(surrogate.value, decisions), weight)
    close(
        surrogate.value,
        [
            [w * float(lp) for w, lp in zip(row, values, strict=True)]
            for row, values in zip(weight, decisions.log_prob.detach(), strict=True)
        ],
    )
    assert surrogate.alive.all()
    assert finish(surrogate.statistics) == {"topr/taper_mean": 0.625}


def test_advantage_zero_weighs_as_good() -> None:
    decisions = member_ratios([0.5], advantage=0.0)
    close(Topr()(decisions.log_ratio, decisions).value, [[0.0]])
