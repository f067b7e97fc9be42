"""SAPO: a sigmoid gate on the ratio, steeper for bad decisions."""

from __future__ import annotations

import math

import pytest
from pydantic import ValidationError
from tests.objective.small import close, gradient, member_ratios

from groupwise.objective.trust import Sapo
from groupwise.statistics import finish


def test_gate_and_slope() -> None:
    # tau 2 at ratio 1.5: sigmoid(1); tau 4 at ratio 0.75: sigmoid(-1) = 1 - sigmoid(1). At ratio 1 the slope is one.
    decisions = member_ratios([1.5, 1.0], [0.75, 1.0], advantage=[3.0, -3.0])
    surrogate = Sapo(tau_pos=2.0, tau_neg=4.0)(decisions.log_ratio, decisions)
    p = 1 / (1 + math.exp(-1.0))
    close(surrogate.value, [[2 * p * 3, 3.0], [-(1 - p) * 3, -1.5]])
    slope = 4 * p * (1 - p)
    close(gradient(surrogate.value, decisions), [[3 * 1.5 * slope, 3.0], [-3 * 0.75 * slope, -3.0]])
    assert finish(surrogate.statistics) == pytest.approx({"sapo/gradient_weight_mean": (2 + 2 * slope) / 4})


def test_advantage_zero_has_the_temperature_of_bad_ones() -> None:
    # tau 4 at ratio 0.75, as the paper's "otherwise": 4 p (1 - p) with p = sigmoid(-1). It moves the metric alone.
    decisions = member_ratios([0.75], advantage=0.0)
    surrogate = Sapo(tau_pos=2.0, tau_neg=4.0)(decisions.log_ratio, decisions)
    p = 1 / (1 + math.exp(-1.0))
    assert finish(surrogate.statistics) == pytest.approx({"sapo/gradient_weight_mean": 4 * p * (1 - p)})
    close(gradient(surrogate.value, decisions), [[0.0]])


def test_the_temperature_is_read_in_the_dtype_of_the_scores() -> None:
    decisions = member_ratios([1.0], advantage=-1.0)
    assert Sapo(tau_neg=1.05)(decisions.log_ratio, decisions).value.item() == pytest.approx(-2 / 1.05, abs=1e-15)


def test_far_off_policy_counts_as_without_gradient() -> None:
    # 4 p (1 - p) < 0.01 from |tau (r - 1)| = 5.99 on; a falling ratio never gets there, since r - 1 > -1.
    decisions = member_ratios([6.9, 7.1, 0.001], advantage=1.0)
    assert Sapo()(decisions.log_ratio, decisions).alive.tolist() == [[True, False, True]]


def test_a_temperature_is_positive() -> None:
    with pytest.raises(ValidationError, match="tau_pos"):
        Sapo(tau_pos=0.0)
