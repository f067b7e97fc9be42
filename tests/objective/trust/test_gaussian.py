"""PTRW: a detached Gaussian gate on the ratio."""

from __future__ import annotations

import math

import pytest
from tests.objective.small import close, gradient, member_ratios

from groupwise.objective.trust import Gaussian
from groupwise.statistics import finish


def test_the_gate_multiplies_and_is_not_differentiated() -> None:
    # sigma 0.2: |r - 1| = 0.2 gives exp(-1/2), 0.1 gives exp(-1/8).
    decisions = member_ratios([1.2, 0.9, 1.0], advantage=-2.0)
    surrogate = Gaussian(sigma=0.2)(decisions.log_ratio, decisions)
    expected = [[-2.4 * math.exp(-0.5), -1.8 * math.exp(-0.125), -2.0]]
    close(surrogate.value, expected)
    close(gradient(surrogate.value, decisions), expected)
    assert finish(surrogate.statistics) == pytest.approx(
        {
            "ptrw/trust_weights_mean": (math.exp(-0.5) + math.exp(-0.125) + 1) / 3,
            "ptrw/loss_mean": -sum(expected[0]) / 3,
        }
    )


def test_a_bad_decision_that_grew_is_never_reinforced_only_silenced() -> None:
    decisions = member_ratios([1.05, 2.0], advantage=-1.0)
    surrogate = Gaussian(sigma=0.2)(decisions.log_ratio, decisions)
    assert all(value <= 0 for value in gradient(surrogate.value, decisions)[0])
    assert surrogate.alive.tolist() == [[True, False]]
    assert float(surrogate.value[0, 1].detach()) == pytest.approx(-2 * math.exp(-12.5), rel=1e-12)
