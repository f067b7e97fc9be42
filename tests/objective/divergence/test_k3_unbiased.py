"""r (exp(x) - x - 1): k3 weighted by the ratio."""

from __future__ import annotations

import math

import pytest
import torch
from tests.objective.small import close, gradient, member_ratios

from groupwise.objective.decisions import Decisions
from groupwise.objective.divergence import K3Unbiased


def test_value_and_gradient() -> None:
    # x = ln 2, r = 3: 3 (1 - ln 2); d/dlp of r k3 = r k3 + r (1 - e^x) = 3 (1 - ln 2) - 3.
    decisions = member_ratios([3.0])
    gap = math.log(2.0)
    penalty = K3Unbiased()(decisions, decisions.log_prob.detach() + gap, None)
    close(penalty, [[3 * (1 - gap)]])
    close(gradient(penalty, decisions), [[-3 * gap]])


def test_clamped_in_log_space() -> None:
    decisions = member_ratios([math.exp(60.0)], old=-70.0)
    penalty = K3Unbiased()(decisions, decisions.log_prob.detach() + 60.0, None)
    close(penalty / math.exp(80.0), [[1.0 - 61 * math.exp(-60.0)]])


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
