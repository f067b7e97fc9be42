from __future__ import annotations

import pytest
import torch
from diffusers import FlowMatchEulerDiscreteScheduler
from pydantic import ValidationError
from tests.images.diffusion.sampler.toy import at

from groupwise_images.diffusion.sampler import DanceSDE
from groupwise_images.diffusion.transition import read_schedule, transition


def test_a_path_is_the_papers_with_the_schedulers_levels() -> None:
    """DanceGRPO's step by the score, written down anew with nothing but the scheduler's `sigmas`."""
    eta = 0.3
    scheduler = FlowMatchEulerDiscreteScheduler(shift=3.0)
    schedule = read_schedule(scheduler, 6)
    sigmas = scheduler.sigmas.double()
    generator = torch.Generator().manual_seed(0)
    theirs = ours = torch.randn(2, 1, 3, 3, generator=generator, dtype=torch.float64)
    for index in range(5):
        v = torch.sin(2 * theirs + index)
        s, ds = sigmas[index], sigmas[index + 1] - sigmas[index]
        clean = theirs - s * v
        score = -(theirs - clean * (1 - s)) / s**2
        mean = theirs + ds * v - 0.5 * eta**2 * score * ds
        std = eta * (-ds).sqrt()
        noise = torch.randn(theirs.shape, generator=generator, dtype=torch.float64)
        theirs = mean + std * noise
        found = transition(DanceSDE(noise=eta), "flow", ours, torch.sin(2 * ours + index), at(schedule, index))
        ours = found.draw(noise)
        assert torch.allclose(ours, theirs, atol=1e-12)
        assert torch.allclose(
            found.log_prob(ours, "sum"),
            torch.distributions.Normal(mean, std).log_prob(theirs).flatten(1).sum(1),
            atol=1e-9,
        )


def test_no_noise_is_refused() -> None:
    with pytest.raises(ValidationError, match="without noise"):
        DanceSDE(noise=-1.0)
