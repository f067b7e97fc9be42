"""Stepwise credit: a transition is rewarded by what it adds to the reward of the clean image that the model predicts.

    gain_t = R(x0 predicted after transition t) - R(x0 predicted before it)

The gains of a path add up to the reward of its image less that of the first prediction. Source: Savani et al. 2026,
arXiv 2603.28718 (Stepwise-Flow-GRPO).
"""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from groupwise.reward import RewardError, RewardTable
from groupwise_images.diffusion.sampler import Sampler, Step
from groupwise_images.diffusion.transition import (
    Schedule,
    is_flow,
    read_parametrisation,
    read_schedule,
    with_stated_levels,
)


def predicted_latents(payload: Mapping[str, Any], schedule: Schedule, sampler: Sampler) -> Tensor:
    """Computes the clean latents that the model predicts before each of `W` decisions, `[B, W, ...]`.

    A transition starts at `x = a x0 + b e` and has the mean `a' x0 + kept e`; both are known, and so `x0` is.

    Args:
        payload: `visited`, `mean` and `first` of the members.
        schedule, sampler: by which the members were drawn.
    """
    mean = payload["mean"]
    index = (int(payload["first"][0]) + torch.arange(mean.shape[1])).to(schedule.time.device)
    step = Step.of(schedule, index)
    kept = sampler(step).kept
    # kept a < b a', for a sampler keeps no more noise than there is after the transition.
    determinant = kept * step.signal - step.noise * step.next_signal
    of_latents, of_mean = (
        (factor / determinant).to(mean).view(1, -1, *[1] * (mean.dim() - 2)) for factor in (kept, -step.noise)
    )
    return of_latents * payload["visited"][:, :-1] + of_mean * mean


def gains(table: RewardTable, num_states: int) -> RewardTable:
    """Turns the rewards of `W + 1` images a member into a map of `W` gains a member.

    Args:
        table: rewards of the predicted images, state by state within a member, the member's own image last.
        num_states: `W + 1`.

    Returns:
        Maps `[W]` a member with their means as values; `logged` has the rewards of the images themselves as
        `NAME/image`.

    Raises:
        RewardError: a reward is missing for a predicted image.

    Example:
        >>> table = gains(RewardTable({"seen": [0.0, 0.5, 0.25]}), 3)
        >>> table.maps["seen"][0].tolist(), table.values["seen"], table.logged["seen/image"]
        ([0.5, -0.25], [0.125], [0.25])
    """
    maps: dict[str, list[Any]] = {}
    logged: dict[str, Sequence[float]] = dict(table.logged)
    for name, values in table.values.items():
        if None in values:
            raise RewardError(
                f"rewards.{name} is missing for an image, and domain.stepwise = true compares the rewards of all images"
                " of a path; let the reward give every image a number, or write domain.stepwise = false"
            )
        by_member = np.asarray(values, dtype=np.float64).reshape(-1, num_states)
        maps[name] = list(np.diff(by_member, axis=1))
        logged[f"{name}/image"] = by_member[:, -1].tolist()
    means = {name: [float(row.mean()) for row in rows] for name, rows in maps.items()}
    bounds = {name: (low - high, high - low) for name, (low, high) in table.bounds.items()}
    contents = table.contents[num_states - 1 :: num_states]
    return replace(
        table, values=means, maps=maps, logged=logged, bounds=bounds, fields={}, extras={}, contents=contents
    )


# A scheduler of diffusers of first order, with which a pipeline's own call takes the steps that are taken here.

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
