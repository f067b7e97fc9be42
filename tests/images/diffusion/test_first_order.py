"""The scheduler with which a pipeline's own call takes the steps that are taken here."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from diffusers import (
    DDIMScheduler,
    DPMSolverMultistepScheduler,
    EulerDiscreteScheduler,
    FlowMatchHeunDiscreteScheduler,
    PNDMScheduler,
    UniPCMultistepScheduler,
)

from groupwise_images.diffusion.sampler import ODE, Step
from groupwise_images.diffusion.transition import read_parametrisation, read_schedule, transition
from groupwise_images.testing import of_first_order

FLOW = {"prediction_type": "flow_prediction", "use_flow_sigmas": True, "flow_shift": 3.0}
ZERO = {"rescale_betas_zero_snr": True, "timestep_spacing": "trailing", "prediction_type": "v_prediction"}
SCHEDULERS = [
    UniPCMultistepScheduler(**FLOW),
    DPMSolverMultistepScheduler(**FLOW),
    FlowMatchHeunDiscreteScheduler(shift=3.0),
    PNDMScheduler(skip_prk_steps=True),
    DPMSolverMultistepScheduler(),
    UniPCMultistepScheduler(prediction_type="v_prediction", final_sigmas_type="sigma_min"),
    EulerDiscreteScheduler(timestep_spacing="trailing"),
    EulerDiscreteScheduler(use_karras_sigmas=True),
    DDIMScheduler(timestep_spacing="linspace", set_alpha_to_one=False, clip_sample=False, prediction_type="sample"),
    DDIMScheduler(clip_sample=False, **ZERO),
]


@pytest.mark.parametrize("num_steps", [3, 4])
@pytest.mark.parametrize("scheduler", SCHEDULERS, ids=lambda scheduler: type(scheduler).__name__)
def test_it_takes_the_step_without_noise(scheduler: Any, num_steps: int) -> None:
    first = of_first_order(scheduler)
    schedule = read_schedule(first, num_steps, spacing="scheduler")
    expected = read_schedule(scheduler, num_steps, spacing="scheduler")
    assert schedule.noise.tolist() == pytest.approx(expected.noise.tolist(), abs=1e-6)
    first.set_timesteps(num_steps)
    latents = here = torch.randn(2, 3, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    for index, timestep in enumerate(first.timesteps):
        latents = first.step(torch.sin(3 * latents), timestep, latents, return_dict=False)[0]
        step = Step.of(schedule, torch.full((2,), index))
        here = transition(ODE(), read_parametrisation(first), here, torch.sin(3 * here), step).mean
    assert torch.allclose(latents.double(), here, rtol=1e-4, atol=1e-5)
