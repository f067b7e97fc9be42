"""The moving average of the ratio against its recursion, worked by hand and looped."""

from __future__ import annotations

from typing import Literal

import pytest
import torch
from tests.objective.small import close, gradient, member_ratios

from groupwise.objective.decisions import Decisions
from groupwise.objective.ratio import Ema, Product, scan
from groupwise.statistics import finish


def test_recursion_passes_over_masked_decisions() -> None:
    # beta 0.9: 2; 0.9 * 1 + 0.1 * 2 = 1.1; (hole); 0.9 * 3 + 0.1 * 1.1 = 2.81
    decisions = member_ratios([2.0, 1.0, None, 3.0], [3.0])
    close(decisions.masked(Ema(beta=0.9)(decisions).exp()), [[2.0, 1.1, 0.0, 2.81], [3.0, 0.0, 0.0, 0.0]])


def test_gradient_is_the_transpose_of_the_recursion() -> None:
    # On-policy with beta 0.9 and three decisions, d sum r' / d lp_s: 1 + 0.1 + 0.01, 0.9 + 0.09, 0.9.
    decisions = member_ratios([1.0, 1.0, 1.0])
    close(gradient(Ema(beta=0.9)(decisions).exp(), decisions), [[1.11, 0.99, 0.9]])


def test_detach_keeps_the_value_and_each_decisions_own_gradient() -> None:
    decisions = member_ratios([2.0, 1.0])
    smoothed = Ema(beta=0.9, detach=True)(decisions).exp()
    close(smoothed, [[2.0, 1.1]])
    close(gradient(smoothed, decisions), [[2.0, 1.1]])


@pytest.mark.parametrize("width", [1, 2, 17, 100])
@pytest.mark.parametrize("beta", [0.05, 0.9, 1.0])
def test_scan_equals_a_loop(width: int, beta: float) -> None:
    ratio = torch.rand(2, width, dtype=torch.float64, generator=torch.Generator().manual_seed(width)) * 3
    for start in (ratio[:, :1], torch.ones(2, 1, dtype=torch.float64)):
        previous = start[:, 0]
        expected = []
        for t in range(width):
            previous = beta * ratio[:, t] + (1 - beta) * previous
            expected.append(previous)
        torch.testing.assert_close(scan(ratio, beta, start), torch.stack(expected, 1), rtol=0, atol=1e-13)


@pytest.mark.parametrize("width", [1, 2, 17, 100])
@pytest.mark.parametrize("init", ["first", "one"])
@pytest.mark.parametrize("packed", [True, False])
def test_gradient_equals_a_loops(width: int, init: Literal["first", "one"], packed: bool) -> None:
    generator = torch.Generator().manual_seed(width)
    log_ratio = (torch.rand(3, width, dtype=torch.float64, generator=generator) - 0.5).requires_grad_()
    cotangent = torch.rand(3, width, dtype=torch.float64, generator=generator)
    decisions = Decisions.of(
        torch.ones(3, width, dtype=torch.bool),
        log_ratio,
        torch.zeros_like(log_ratio),
        torch.ones_like(log_ratio),
        packed=packed,
    )
    (gradients,) = torch.autograd.grad((cotangent * Ema(beta=0.3, init=init)(decisions)).sum(), log_ratio)
    ratio = log_ratio.exp()
    previous, columns = ratio[:, 0] if init == "first" else torch.ones(3, dtype=torch.float64), []
    for t in range(width):
        previous = 0.3 * ratio[:, t] + 0.7 * previous
        columns.append(previous.log())
    (expected,) = torch.autograd.grad((cotangent * torch.stack(columns, 1)).sum(), log_ratio)
    torch.testing.assert_close(gradients, expected, rtol=0, atol=1e-13)


def test_gradients_in_fp32_lose_nothing_that_counts() -> None:
    # Powers and cotangents below 1e-19 are dropped: beside fp64, rounding is all that is left.
    generator = torch.Generator().manual_seed(0)
    log_ratio = torch.rand(4, 600, dtype=torch.float64, generator=generator) - 0.5
    gradients = []
    for dtype in (torch.float64, torch.float32):
        leaf = log_ratio.to(dtype).requires_grad_()
        decisions = Decisions.of(
            torch.ones(4, 600, dtype=torch.bool), leaf, torch.zeros_like(leaf), torch.ones_like(leaf), packed=True
        )
        gradients.append(torch.autograd.grad(1e-6 * Ema(beta=0.9)(decisions).sum(), leaf)[0].double())
    torch.testing.assert_close(gradients[1], gradients[0], rtol=1e-5, atol=0)


def test_a_cotangent_of_a_product_over_a_small_ratio_does_not_overflow() -> None:
    # Log-ratios of a member whose product is e^80, the first of them e^-20: the gradient by it is beta e^80 / r'_1 r_1
    # = e^80 and a little.
    log_ratio = torch.tensor([[-20.0, 20.0, 20.0, 20.0, 20.0, 20.0]])
    gradients = []
    for dtype in (torch.float64, torch.float32):
        leaf = log_ratio.to(dtype).requires_grad_()
        decisions = Decisions.of(
            torch.ones(1, 6, dtype=torch.bool), leaf, torch.zeros_like(leaf), torch.ones_like(leaf), packed=True
        )
        gradients.append(
            torch.autograd.grad(Product()(Ema(beta=0.9)(decisions), decisions).exp()[0, 0], leaf)[0].double()
        )
    assert gradients[0][0, 0] > 1e34
    torch.testing.assert_close(gradients[1], gradients[0], rtol=1e-4, atol=0)


def test_metrics_are_the_sources() -> None:
    # Ratios 2, 1: mean 1.5, variance 0.25. Smoothed 2, 1.1: mean 1.55, variance 0.2025.
    decisions = member_ratios([2.0, 1.0])
    numbers = finish(Ema(beta=0.9).measure(decisions, Ema(beta=0.9)(decisions)))
    assert numbers == pytest.approx(
        {
            "ema/raw_weights_variance": 0.25,
            "ema/smoothed_weights_variance": 0.2025,
            "ema/variance_reduction_ratio": 1 - 0.2025 / 0.25,
        }
    )
    flat = member_ratios([1.0, 1.0])
    assert finish(Ema().measure(flat, Ema()(flat)))["ema/variance_reduction_ratio"] == 0.0


# No smoothing leaves the log-ratio as it is.
