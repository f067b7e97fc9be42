"""exp(x) - x - 1 with x = lp_ref - lp."""

from __future__ import annotations

import math

import pytest
import torch
from tests.objective.small import close, gradient, member_ratios

from groupwise.objective.decisions import Decisions
from groupwise.objective.divergence import K3, K3Unbiased


def test_value_and_gradient() -> None:
    # x = ln 2: 2 - ln 2 - 1, gradient 1 - 2; x = -ln 2: 1/2 + ln 2 - 1, gradient 1 - 1/2.
    decisions = member_ratios([2.0, 1.0])
    gap = math.log(2.0)
    penalty = K3()(decisions, decisions.log_prob.detach() + decisions.log_prob.new_tensor([[gap, -gap]]), None)
    close(penalty, [[1 - gap, gap - 0.5]])
    close(gradient(penalty, decisions), [[-1.0, 0.5]])


@pytest.mark.parametrize("gap", [79.0, 80.0, 81.0, 199.0])
def test_far_below_the_reference_it_is_a_line_that_pulls_back(gap: float) -> None:
    # The line through x = 80: e^80 - 81 + (x - 80) (e^80 - 1), whose slope by the log-prob is 1 - e^80. It turned round
    # there: +1 lowers what is too low.
    decisions = member_ratios([1.0], old=-200.0)
    penalty = K3()(decisions, decisions.log_prob.detach() + gap, None)
    slope = math.expm1(min(gap, 80.0))
    expected = math.exp(gap) - gap - 1 if gap <= 80 else math.exp(80.0) - 81 + (gap - 80) * slope
    assert float(penalty.detach()) == pytest.approx(expected, rel=1e-14)
    (values,) = torch.autograd.grad(penalty.sum(), decisions.log_prob)
    assert float(values) == pytest.approx(-slope, rel=1e-14)


def test_fp32_holds_it_however_far_the_policy_is() -> None:
    log_prob = torch.full((1, 1), -1e30).requires_grad_()
    decisions = Decisions.of(torch.ones(1, 1, dtype=torch.bool), log_prob, log_prob.detach(), torch.ones(1, 1))
    penalty = K3()(decisions, torch.full((1, 1), -1.0), None)
    assert bool(penalty.isfinite().all())
    (values,) = torch.autograd.grad(penalty.sum(), log_prob)
    assert values.item() == pytest.approx(-math.expm1(80.0), rel=1e-5)


@pytest.mark.parametrize("kind", [K3, K3Unbiased])
@pytest.mark.parametrize("drift", [1e-4, 3e-4])
def test_fp32_tells_a_small_drift(kind: type[K3 | K3Unbiased], drift: float) -> None:
    """4096 log-probs that drifted: exp(x) - x - 1 gave -6.6e-11 in fp32 where the truth is 5e-9."""
    generator = torch.Generator().manual_seed(0)
    old = (-3 * torch.rand(1, 4096, generator=generator)) - 0.1
    log_prob = old + drift * torch.randn(1, 4096, generator=generator)
    decisions = Decisions.of(torch.ones(1, 4096, dtype=torch.bool), log_prob, log_prob, torch.ones(1, 4096))
    values = kind()(decisions, old, None)
    # The truth for the numbers as fp32 holds them.
    gap = (old - log_prob).double()
    exact = gap.expm1() - gap
    assert bool((values >= 0).all())
    assert float(values.double().mean()) == pytest.approx(float(exact.mean()), rel=1e-3)
    # Each to the rounding of expm1(x), which is next to x.
    assert bool(((values.double() - exact).abs() <= 2 * torch.finfo(torch.float32).eps * gap.abs()).all())
