"""The moving average of the ratio against its recursion, worked by hand and looped."""

from __future__ import annotations

import pytest
import torch
from pydantic import ValidationError
from tests.objective.small import close, gradient, member_ratios

from groupwise.objective.smoothing.ema import Ema, scan
from groupwise.statistics import finish


def test_recursion_passes_over_masked_decisions() -> None:
    # beta 0.9: 2; 0.9 * 1 + 0.1 * 2 = 1.1; (hole); 0.9 * 3 + 0.1 * 1.1 = 2.81
    given = member_ratios([2.0, 1.0, None, 3.0], [3.0])
    close(Ema(beta=0.9)(given).exp(), [[2.0, 1.1, 1.0, 2.81], [3.0, 1.0, 1.0, 1.0]])


def test_init_one_averages_the_first_decision_too() -> None:
    # 0.9 * 2 + 0.1 = 1.9; 0.9 * 1 + 0.19 = 1.09
    close(Ema(beta=0.9, init="one")(member_ratios([2.0, 1.0])).exp(), [[1.9, 1.09]])


def test_gradient_is_the_transpose_of_the_recursion() -> None:
    # On-policy with beta 0.9 and three decisions, d sum r' / d lp_s: 1 + 0.1 + 0.01, 0.9 + 0.09, 0.9.
    given = member_ratios([1.0, 1.0, 1.0])
    close(gradient(Ema(beta=0.9)(given).exp(), given), [[1.11, 0.99, 0.9]])


def test_detach_keeps_the_value_and_each_decisions_own_gradient() -> None:
    given = member_ratios([2.0, 1.0])
    smoothed = Ema(beta=0.9, detach=True)(given).exp()
    close(smoothed, [[2.0, 1.1]])
    close(gradient(smoothed, given), [[2.0, 1.1]])


@pytest.mark.parametrize("width", [1, 2, 17, 100])
@pytest.mark.parametrize("beta", [0.05, 0.9, 1.0])
def test_scan_equals_a_loop(width: int, beta: float) -> None:
    ratio = torch.rand(2, width, dtype=torch.float64, generator=torch.Generator().manual_seed(width)) * 3
    for first in (True, False):
        before = ratio[:, 0] if first else torch.ones(2, dtype=torch.float64)
        expected = []
        for t in range(width):
            before = beta * ratio[:, t] + (1 - beta) * before
            expected.append(before)
        torch.testing.assert_close(scan(ratio, beta, first), torch.stack(expected, 1), rtol=0, atol=1e-13)


def test_metrics_are_the_sources() -> None:
    # Ratios 2, 1: mean 1.5, variance 0.25. Smoothed 2, 1.1: mean 1.55, variance 0.2025.
    given = member_ratios([2.0, 1.0])
    numbers = finish(Ema(beta=0.9).measure(given, Ema(beta=0.9)(given)))
    assert numbers == pytest.approx(
        {"ema/raw_weights_variance": 0.25, "ema/smoothed_weights_variance": 0.2025, "ema/variance_reduction_ratio": 1 - 0.2025 / 0.25}
    )
    flat = member_ratios([1.0, 1.0])
    assert finish(Ema().measure(flat, Ema()(flat)))["ema/variance_reduction_ratio"] == 0.0


@pytest.mark.parametrize("beta", [0.0, 1.5])
def test_beta_is_a_share(beta: float) -> None:
    with pytest.raises(ValidationError, match="beta"):
        Ema(beta=beta)
