"""A scheduler of diffusers of first order, with which a pipeline's own call takes the steps that are taken here."""

from __future__ import annotations

import copy
from typing import Any

from groupwise.domain.diffusion.noise_schedule import (
    is_flow,
    read_parametrisation,
    read_schedule,
    with_stated_levels,
)

_LEAST = 2**-12
"""Of the signal, as diffusers has it where training ends at pure noise."""


def of_first_order(scheduler: Any) -> Any:
    """Returns a diffusers scheduler of the same noise levels whose step is the one without noise here: Euler's of a
    flow, and otherwise that of DPM-Solver of first order, which is DDIM's. DDIM's own scheduler steps by equal
    distances, also where its timesteps are at others.

    Example:
        >>> from diffusers import PNDMScheduler
        >>> scheduler = of_first_order(PNDMScheduler(skip_prk_steps=True, timestep_spacing="linspace"))
        >>> scheduler.set_timesteps(3)
        >>> scheduler.timesteps.tolist()
        [999.0, 500.0, 0.0]
    """
    if type(scheduler).__name__.startswith("FlowMatch"):
        return with_stated_levels(scheduler)
    from diffusers.schedulers.scheduling_dpmsolver_multistep import DPMSolverMultistepScheduler

    class FirstOrder(DPMSolverMultistepScheduler):
        def set_timesteps(  # type: ignore[override]
            self, num_inference_steps: int | None = None, device: Any = None, sigmas: Any = None, mu: Any = None
        ) -> None:
            num_steps = num_inference_steps or len(sigmas)
            super().set_timesteps(num_steps, device)
            schedule = read_schedule(
                scheduler, num_steps, spacing="scheduler" if sigmas is None else "uniform", shift=mu
            )
            self.timesteps = schedule.timestep.float().to(device)
            self.sigmas = (
                schedule.noise if schedule.kind == "flow" else schedule.noise / schedule.signal.clamp(min=_LEAST)
            ).float()

    prediction: Any = "flow_prediction" if is_flow(scheduler) else read_parametrisation(scheduler)
    made = FirstOrder(
        num_train_timesteps=scheduler.config["num_train_timesteps"],
        solver_order=1,
        prediction_type=prediction,
        use_flow_sigmas=is_flow(scheduler),
    )
    made.alphas_cumprod = scheduler.alphas_cumprod
    return made


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
