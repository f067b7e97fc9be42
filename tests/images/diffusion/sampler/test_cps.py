from __future__ import annotations

import math

import pytest
import torch
from diffusers import FlowMatchEulerDiscreteScheduler
from pydantic import ValidationError
from tests.images.diffusion.sampler.toy import at

from groupwise_images.diffusion.sampler import CPS
from groupwise_images.diffusion.transition import flow_schedule, read_schedule, transition


def test_eta_one_is_the_schedulers_stochastic_sampling() -> None:
    scheduler = FlowMatchEulerDiscreteScheduler(stochastic_sampling=True)
    schedule = read_schedule(scheduler, 5)
    theirs = ours = torch.randn(2, 1, 3, 3, generator=torch.Generator().manual_seed(0))
    for index, timestep in enumerate(scheduler.timesteps[:-1]):
        with torch.random.fork_rng():
            torch.manual_seed(index)
            theirs = scheduler.step(torch.sin(theirs), timestep, theirs).prev_sample
            torch.manual_seed(index)
            noise = torch.randn_like(ours)
        ours = transition(CPS(eta=1.0), "flow", ours, torch.sin(ours), at(schedule, index)).draw(noise)
        assert torch.allclose(ours, theirs, atol=1e-5)


def test_by_hand() -> None:
    # From s = 0.5 to 0.25 with eta 1/3 (30 degrees): x = 2, v = 1: x0 = 1.5, e = 2.5
    found = transition(
        CPS(eta=1 / 3), "flow", torch.tensor([[2.0]]), torch.tensor([[1.0]]), at(flow_schedule([0.5, 0.25, 0.0]), 0)
    )
    assert float(found.mean) == pytest.approx(0.75 * 1.5 + 0.25 * math.cos(math.pi / 6) * 2.5)
    assert float(found.std) == pytest.approx(0.125)


@pytest.mark.parametrize("eta", [0.0, 1.01])
def test_no_noise_is_refused(eta: float) -> None:
    with pytest.raises(ValidationError, match="eta"):
        CPS(eta=eta)
