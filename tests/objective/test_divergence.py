"""What every divergence shares: a schedule for beta, what against, and where."""

from __future__ import annotations

import math

import pytest
import torch
from tests.objective.small import close, gradient, member_ratios

from groupwise.objective.decisions import Decisions
from groupwise.objective.divergence import K1, K2, K3, Absolute, Exact, K3Unbiased

# |lp - lp_ref|.


def test_abs_value_and_gradient() -> None:
    decisions = member_ratios([2.0, 1.0])
    penalty = Absolute()(decisions, decisions.log_prob.detach() + decisions.log_prob.new_tensor([[-0.5, 2.0]]), None)
    close(penalty, [[0.5, 2.0]])
    close(gradient(penalty, decisions), [[1.0, -1.0]])


# What the domain computed.


def test_passes_the_domains_value_through() -> None:
    decisions = member_ratios([2.0, 1.0])
    exact = decisions.log_prob * 3
    close(Exact()(decisions, decisions.log_prob, exact), exact.detach().tolist())


# lp - lp_ref.


def test_k1_value_and_gradient() -> None:
    decisions = member_ratios([2.0, 1.0])
    penalty = K1()(decisions, decisions.log_prob.detach() - 0.5, None)
    close(penalty, [[0.5, 0.5]])
    close(gradient(penalty, decisions), [[1.0, 1.0]])


def test_against_the_policy_that_acted_it_is_the_divergence_from_that_policy() -> None:
    # lp_old - lp of samples of the old policy, whose mean is KL(old || pi); making it smaller makes what was sampled
    # likelier.
    decisions = member_ratios([0.5, 1.0])
    penalty = K1(against="behaviour")(decisions, decisions.acted.old_log_prob, None)
    close(penalty, [[math.log(2.0), 0.0]])
    close(gradient(penalty, decisions), [[-1.0, -1.0]])


# (lp - lp_ref)^2 / 2.


def test_k2_value_and_gradient() -> None:
    decisions = member_ratios([2.0, 1.0])
    penalty = K2()(decisions, decisions.log_prob.detach() + decisions.log_prob.new_tensor([[-0.5, 2.0]]), None)
    close(penalty, [[0.125, 2.0]])
    close(gradient(penalty, decisions), [[0.5, -2.0]])


# exp(x) - x - 1 with x = lp_ref - lp.


def test_k3_value_and_gradient() -> None:
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


# r (exp(x) - x - 1): k3 weighted by the ratio.


def test_k3_unbiased_value_and_gradient() -> None:
    # x = ln 2, r = 3: 3 (1 - ln 2); d/dlp of r k3 = r k3 + r (1 - e^x) = 3 (1 - ln 2) - 3.
    decisions = member_ratios([3.0])
    gap = math.log(2.0)
    penalty = K3Unbiased()(decisions, decisions.log_prob.detach() + gap, None)
    close(penalty, [[3 * (1 - gap)]])
    close(gradient(penalty, decisions), [[-3 * gap]])


@pytest.mark.parametrize(
    ("dtype", "gap", "log_ratio", "expected"),
    [
        # A decision that fell 100 nats, whose reference stayed: r e^x = 1, and held at e^-40 it was 1e26 in fp32.
        (torch.float32, 100.0, -100.0, 1.0),
        (torch.float32, 41.0, -41.0, 1.0),
        (torch.float64, 400.0, -400.0, 1.0),
        # Above the old policy and below the reference: beyond the clamp the value stays, where it fell to 0.
        (torch.float64, 79.0, 90.0, math.exp(80.0)),
        (torch.float64, 30.0, 60.0, math.exp(80.0)),
    ],
)
def test_the_value_far_from_both_policies(dtype: torch.dtype, gap: float, log_ratio: float, expected: float) -> None:
    log_prob = torch.full((1, 1), -500.0, dtype=dtype)
    decisions = Decisions.of(torch.ones(1, 1, dtype=torch.bool), log_prob, log_prob - log_ratio, log_prob)
    assert float(K3Unbiased()(decisions, log_prob + gap, None)) == pytest.approx(expected, rel=1e-4)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("gap", [1e-4, 0.5, 1.0, 1.5, 5.0, 17.0, 20.0, 25.0, 40.0, -7.0])
def test_the_slope_is_minus_r_x(dtype: torch.dtype, gap: float) -> None:
    """On-policy, at any distance: in fp32 a difference of exponentials gave -18 at 17 nats and 0 from 25 on."""
    log_prob = torch.full((1, 2), -abs(gap) - 0.375, dtype=dtype).requires_grad_()
    old = torch.cat([log_prob.detach()[:, :1], log_prob.detach()[:, 1:] - math.log(2.0)], 1)
    decisions = Decisions.of(torch.ones(1, 2, dtype=torch.bool), log_prob, old, torch.ones(1, 2, dtype=dtype))
    reference = log_prob.detach() + gap
    penalty = K3Unbiased()(decisions, reference, None)
    (gradients,) = torch.autograd.grad(penalty.sum(), log_prob)
    x = float(reference[0, 0] - log_prob.detach()[0, 0])
    close_to = {torch.float32: 1e-5, torch.float64: 1e-14}[dtype]
    assert gradients[0].tolist() == pytest.approx([-x, -2 * x], rel=close_to)
    exact = math.expm1(x) - x
    assert penalty[0].tolist() == pytest.approx(
        [exact, 2 * exact],
        rel=1e-5 if dtype == torch.float32 and abs(x) > 0.1 else 2e-3 if dtype == torch.float32 else 1e-11,
    )


# No penalty.
