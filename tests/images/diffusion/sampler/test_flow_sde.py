from __future__ import annotations

import pytest
import torch
from diffusers import FlowMatchEulerDiscreteScheduler
from pydantic import ValidationError
from tests.images.diffusion.sampler.toy import at

from groupwise_images.diffusion.sampler import FlowSDE
from groupwise_images.diffusion.transition import flow_schedule, read_schedule, transition


def test_a_path_is_the_papers_with_the_schedulers_levels() -> None:
    """Equation 9 of Flow-GRPO written down anew, with nothing but the scheduler's `sigmas`."""
    a = 0.7
    scheduler = FlowMatchEulerDiscreteScheduler(shift=3.0)
    schedule = read_schedule(scheduler, 6)
    sigmas = scheduler.sigmas.double()
    generator = torch.Generator().manual_seed(0)
    theirs = ours = torch.randn(2, 1, 3, 3, generator=generator, dtype=torch.float64)
    for index in range(5):
        v = torch.sin(2 * theirs + index)
        t, dt = sigmas[index], sigmas[index + 1] - sigmas[index]
        sd = a * (t / (1 - (sigmas[1] if t == 1 else t))).sqrt()
        mean = theirs + (v + sd**2 / (2 * t) * (theirs + (1 - t) * v)) * dt
        std = sd * (-dt).sqrt()
        noise = torch.randn(theirs.shape, generator=generator, dtype=torch.float64)
        theirs = mean + std * noise
        found = transition(FlowSDE(noise=a), "flow", ours, torch.sin(2 * ours + index), at(schedule, index))
        ours = found.draw(noise)
        assert torch.allclose(ours, theirs, atol=1e-12)
        expected = torch.distributions.Normal(mean, std).log_prob(theirs)
        assert torch.allclose(found.log_prob(ours, "mean"), expected.flatten(1).mean(1), atol=1e-10)
        assert float(found.step_size) == pytest.approx(float(-dt), abs=1e-12)


def test_by_hand() -> None:
    # s = 0.5 to 0.25, a = 1: g = 1, std = sqrt(0.25); x = 2, v = 1: mean = 2 - 0.25 (1 + (2 + 0.5)) = 1.125
    found = transition(
        FlowSDE(noise=1.0), "flow", torch.tensor([[2.0]]), torch.tensor([[1.0]]), at(flow_schedule([0.5, 0.25, 0.0]), 0)
    )
    assert (float(found.mean), float(found.std)) == (1.125, 0.5)


def test_no_noise_is_refused() -> None:
    with pytest.raises(ValidationError, match="without noise"):
        FlowSDE(noise=0.0)
