from __future__ import annotations

import math

import pytest
import torch
from torch.distributions import Normal, kl_divergence

from groupwise_images.diffusion.sampler import CPS, Step
from groupwise_images.diffusion.transition import Transition, flow_schedule, reduced, transition

UNITS = ("mean", "sum", "sqrt", "per_element")


def gaussian(shift: float = 0.0) -> Transition:
    mean = torch.arange(12, dtype=torch.float64).view(2, 2, 3) / 7 + shift
    return Transition(mean, torch.tensor([0.5, 2.0], dtype=torch.float64), torch.ones(2))


def by_hand(each: torch.Tensor, unit: str) -> torch.Tensor:
    flat = each.reshape(2, 6)
    return {"mean": flat.mean(1), "sum": flat.sum(1), "sqrt": flat.sum(1) / math.sqrt(6), "per_element": flat}[unit]


@pytest.mark.parametrize("unit", UNITS)
def test_log_prob_entropy_and_divergence_are_those_of_the_gaussian(unit: str) -> None:
    now, after = gaussian(), torch.linspace(-1, 2, 12, dtype=torch.float64).view(2, 2, 3)
    std = now.std.view(2, 1, 1).expand(2, 2, 3)
    normal, other = Normal(now.mean, std), Normal(now.mean + 0.3, std)
    assert torch.allclose(now.log_prob(after, unit), by_hand(normal.log_prob(after), unit), atol=1e-12)
    assert torch.allclose(now.entropy(unit), by_hand(normal.entropy(), unit), atol=1e-12)
    assert torch.allclose(now.divergence(other.mean, unit), by_hand(kl_divergence(normal, other), unit), atol=1e-12)


def test_the_normalised_shift_is_what_grpo_guard_defines() -> None:
    old, now = gaussian(), gaussian(0.01)
    noise = torch.randn(2, 2, 3, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    after = old.draw(noise)
    # Its second form: std (log r + |mean shift|^2 / (2 std^2)), in means over elements.
    log_ratio = now.log_prob(after, "mean") - old.log_prob(after, "mean")
    corrected = now.std * (log_ratio + reduced((now.mean - old.mean).square(), "mean") / (2 * now.std**2))
    assert torch.allclose(now.shift(old.mean, after, "mean"), corrected, atol=1e-12)
    assert torch.allclose(now.shift(old.mean, after, "mean"), (noise * 0.01).flatten(1).mean(1), atol=1e-12)
    assert torch.allclose(now.shift(old.mean, after, "per_element"), (noise * 0.01).flatten(1), atol=1e-12)


def test_the_units_spread_a_shift_as_documented() -> None:
    # A shift of delta sigmas in all of D elements: the log-ratio's mean is -delta^2 / 2, -D delta^2 / 2, -sqrt(D)
    # delta^2 / 2.
    size, delta = 64, 0.01
    old = Transition(
        torch.zeros(20000, size, dtype=torch.float64), torch.ones(20000, dtype=torch.float64), torch.ones(20000)
    )
    now = Transition(old.mean + delta, old.std, old.step_size)
    after = old.draw(torch.randn(20000, size, generator=torch.Generator().manual_seed(0), dtype=torch.float64))
    for unit, scale in (("mean", 1 / size), ("sum", 1.0), ("sqrt", size**-0.5)):
        ratio = now.log_prob(after, unit) - old.log_prob(after, unit)
        assert float(ratio.std()) == pytest.approx(delta * scale * math.sqrt(size), rel=0.02)
        assert float(ratio.mean()) == pytest.approx(
            -scale * size * delta**2 / 2, abs=4 * float(ratio.std()) / math.sqrt(20000)
        )


def test_an_action_is_no_function_of_the_policy_and_a_mean_is() -> None:
    prediction = torch.ones(1, 1, 2, 2, requires_grad=True)
    now = transition(
        CPS(), "flow", torch.ones(1, 1, 2, 2), prediction, Step.of(flow_schedule([1.0, 0.5, 0.0]), torch.tensor([0]))
    )
    assert not now.draw(torch.ones(1, 1, 2, 2)).requires_grad
    after = now.draw(torch.ones(1, 1, 2, 2))
    (gradient,) = torch.autograd.grad(now.log_prob(after, "sum").sum(), prediction)
    # d log p / d prediction = z / std times d mean / d prediction = kept a - a' b, at a = 0, b = 1, a' = 0.5.
    assert torch.allclose(gradient, -0.5 / now.std * torch.ones_like(gradient))


def test_score_norm() -> None:
    now = Transition(torch.zeros(1, 2), torch.tensor([2.0]), torch.ones(1))
    after = torch.tensor([[6.0, -8.0]])
    assert now.score_norm(after, "mean").tolist() == [5.0]
    assert now.score_norm(after, "per_element").tolist() == [[3.0, 4.0]]
