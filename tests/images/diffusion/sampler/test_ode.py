from __future__ import annotations

import torch
from diffusers import DDIMScheduler, FlowMatchEulerDiscreteScheduler
from tests.images.diffusion.sampler.toy import at

from groupwise_images.diffusion.sampler import ODE
from groupwise_images.diffusion.transition import read_schedule, transition


def test_a_flow_goes_as_the_scheduler_goes() -> None:
    for shift in (1.0, 3.0):
        scheduler = FlowMatchEulerDiscreteScheduler(shift=shift)
        schedule = read_schedule(scheduler, 8)
        theirs = ours = torch.randn(2, 1, 4, 4, generator=torch.Generator().manual_seed(0))
        for index, timestep in enumerate(scheduler.timesteps):
            velocity = torch.sin(3 * theirs + index)
            found = transition(ODE(), "flow", ours, torch.sin(3 * ours + index), at(schedule, index))
            assert float(found.std) == 0.0
            ours = found.mean
            theirs = scheduler.step(velocity, timestep, theirs).prev_sample
            assert torch.allclose(ours, theirs, atol=1e-5)


def test_a_variance_preserving_schedule_goes_as_ddim_without_noise() -> None:
    scheduler = DDIMScheduler(clip_sample=False)
    schedule = read_schedule(scheduler, 10)
    scheduler.set_timesteps(10)
    theirs = ours = torch.randn(2, 1, 4, 4, generator=torch.Generator().manual_seed(0))
    for index, timestep in enumerate(scheduler.timesteps):
        ours = transition(ODE(), "epsilon", ours, torch.sin(ours), at(schedule, index)).mean
        theirs = scheduler.step(torch.sin(theirs), timestep, theirs, eta=0.0).prev_sample
        assert torch.allclose(ours, theirs, atol=2e-4)
