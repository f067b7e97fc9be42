"""A scheduler of diffusers of first order, with which a pipeline's own call takes the steps that are taken here."""

from __future__ import annotations

import copy
from typing import Any

from groupwise.domain.diffusion.noise_schedule import (
    ends_clean,
    is_flow,
    read_parametrisation,
    timesteps_of,
    with_stated_levels,
)

_LEAST = 2**-24
"""Of `alphas_cumprod`, as diffusers has it where training ends at pure noise."""


def of_first_order(scheduler: Any) -> Any:
    """Returns a diffusers scheduler of the same noise levels whose step is the one without noise here: Euler's of a
    flow, and otherwise that of DPM-Solver of first order, which is DDIM's. DDIM's own scheduler steps by equal
    distances, also where its timesteps are at others.

    Example:
        >>> from diffusers import PNDMScheduler
        >>> scheduler = of_first_order(PNDMScheduler(skip_prk_steps=True, timestep_spacing="linspace"))
        >>> scheduler.set_timesteps(3)
        >>> scheduler.timesteps.tolist()
        [999, 500, 0]
    """
    if not is_flow(scheduler):
        return _of_noise(scheduler)
    scheduler = with_stated_levels(scheduler)
    if type(scheduler).__name__.startswith("FlowMatch"):
        return scheduler
    # Of first order, a multistep solver remembers nothing; its corrector is switched off at every step.
    return type(scheduler).from_config(scheduler.config, solver_order=1, disable_corrector=list(range(1000)))


def still(scheduler: Any) -> Any:
    """Returns a scheduler as `of_first_order` does, whose step leaves the latents as they are: a pipeline's own call
    then decodes the noise that it begins with.
    """
    from diffusers.schedulers.scheduling_utils import SchedulerOutput

    def step(model_output: Any, timestep: Any, sample: Any, return_dict: bool = True, **_: Any) -> Any:
        return SchedulerOutput(prev_sample=sample) if return_dict else (sample,)

    # A scheduler of a flow may be returned as it is.
    made = copy.deepcopy(of_first_order(scheduler))
    made.step = step
    return made


def _of_noise(scheduler: Any) -> Any:
    from diffusers.schedulers.scheduling_dpmsolver_multistep import DPMSolverMultistepScheduler

    class FirstOrder(DPMSolverMultistepScheduler):
        def set_timesteps(self, num_inference_steps: int, device: Any = None) -> None:  # type: ignore[override]
            super().set_timesteps(device=device, timesteps=timesteps_of(scheduler, num_inference_steps).tolist())

    prediction: Any = read_parametrisation(scheduler)
    made = FirstOrder(
        num_train_timesteps=scheduler.config["num_train_timesteps"],
        solver_order=1,
        prediction_type=prediction,
        final_sigmas_type="zero" if ends_clean(scheduler) else "sigma_min",
    )
    made.alphas_cumprod = scheduler.alphas_cumprod.clamp(min=_LEAST)
    return made
