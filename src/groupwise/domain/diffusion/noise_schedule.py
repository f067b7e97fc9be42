"""The noise levels of a sampling run, read from a diffusers scheduler: `x_i = signal_i x0 + noise_i e`, from `i = 0`
(noise) to `i = S` (an image).
"""

from __future__ import annotations

import copy
import inspect
from dataclasses import dataclass
from typing import Any, Literal, final

import numpy as np
import torch
from torch import Tensor

from groupwise.config import ConfigError

Parametrisation = Literal["flow", "epsilon", "v_prediction", "sample"]
"""The prediction of a model, for `x = a x0 + b e`: the velocity `e - x0`, the noise `e`, `a e - b x0`, or `x0`."""

_USE = "use DDIMScheduler or FlowMatchEulerDiscreteScheduler"


@final
@dataclass(frozen=True)
class Schedule:
    """Noise levels of `S` transitions, fp64.

    Args:
        timestep: `[S]`, what the model is told at the start of each transition.
        time: `[S + 1]`, falling from at most 1 to 0: the noise level `s` of a flow, the share of the training steps
            otherwise.
        signal, noise: `[S + 1]`, the factors of image and noise.
        kind: `flow` (`signal = 1 - s`, `noise = s`) or `variance_preserving` (`signal^2 + noise^2 = 1`).

    Example:
        >>> flow_schedule([1.0, 0.5, 0.0]).signal.tolist()
        [0.0, 0.5, 1.0]
    """

    timestep: Tensor
    time: Tensor
    signal: Tensor
    noise: Tensor
    kind: Literal["flow", "variance_preserving"]

    def __post_init__(self) -> None:
        assert len(self.time) == len(self.signal) == len(self.noise) == len(self.timestep) + 1
        if not bool((self.time[1:] < self.time[:-1]).all()):
            raise ConfigError(
                f"the scheduler's times do not fall: {[round(value, 4) for value in self.time.tolist()]}; ask for fewer"
                " steps"
            )

    @property
    def num_steps(self) -> int:
        """The number of transitions from noise to an image."""
        return len(self.timestep)


def read_parametrisation(scheduler: Any) -> Parametrisation:
    """Reads what the model of a diffusers scheduler predicts.

    Raises:
        ConfigError: a kind of prediction that transitions cannot be made of.

    Example:
        >>> from diffusers import DDIMScheduler
        >>> read_parametrisation(DDIMScheduler(prediction_type="v_prediction"))
        'v_prediction'
    """
    if is_flow(scheduler):
        return "flow"
    prediction_type = scheduler.config.get("prediction_type", "epsilon")
    if prediction_type not in ("epsilon", "v_prediction", "sample"):
        raise ConfigError(
            f"the scheduler {type(scheduler).__name__} has prediction_type = {prediction_type!r}; allowed: 'epsilon',"
            " 'v_prediction', 'sample'. For flow matching put a FlowMatchEulerDiscreteScheduler into the model's"
            " scheduler/"
        )
    return prediction_type


def is_flow(scheduler: Any) -> bool:
    """Tests that a diffusers scheduler is one of flow matching, by its class or its setting `use_flow_sigmas`."""
    return type(scheduler).__name__.startswith("FlowMatch") or bool(scheduler.config.get("use_flow_sigmas", False))


def flow_schedule(sigmas: list[float], num_train_timesteps: int = 1000) -> Schedule:
    """Builds the schedule of a flow with these noise levels, the last of them 0."""
    noise = torch.tensor(sigmas, dtype=torch.float64)
    return Schedule(noise[:-1] * num_train_timesteps, noise, 1 - noise, noise, "flow")


def read_schedule(
    scheduler: Any, num_steps: int, *, spacing: Literal["uniform", "scheduler"] = "uniform", shift: float | None = None
) -> Schedule:
    """Reads the noise levels that a diffusers scheduler gives `num_steps` transitions.

    Args:
        scheduler: flow matching, or any with `alphas_cumprod`, read as DDIM reads it.
        spacing: of a flow's levels before its shift: `uniform` is `1, ..., 1/S` and then 0, so that every transition
            takes away its share of the noise; `scheduler` is the scheduler's own, which ends at its smallest level
            (0.001) and then 0: the last but one transition then carries nearly all of the last one's noise to the
            image, and the last one has nothing to do.
        shift: the resolution-dependent `mu` of schedulers with dynamic shifting.

    Raises:
        ConfigError: the scheduler is of another family, or clips (a clip has no gradient).
    """
    name = type(scheduler).__name__
    config = scheduler.config
    if clips := [key for key in ("clip_sample", "thresholding") if getattr(config, key, False)]:
        reason = (
            f"where it clips there is no gradient; write {clips[0]} = false into the model's scheduler_config.json (for"
            " a model made here, "
        )
        raise ConfigError(
            f"the scheduler {name} has {clips[0]} = true: {reason}domain.model.scheduler.settings.{clips[0]} = false)"
        )
    if is_flow(scheduler):
        flow = with_stated_levels(scheduler)
        extra: dict[str, Any] = {} if shift is None else {"mu": shift}
        spacing_arguments = (
            {"num_inference_steps": num_steps}
            if spacing == "scheduler"
            else {"sigmas": np.array([1 - step / num_steps for step in range(num_steps)])}
        )
        flow.set_timesteps(**spacing_arguments, **extra)
        sigmas = flow.sigmas.double().cpu()
        # A few schedulers begin a millionth below pure noise, where they would divide by 0.
        return Schedule(flow.timesteps.double().cpu(), sigmas, 1 - sigmas, sigmas, "flow")
    if not hasattr(scheduler, "alphas_cumprod"):
        raise ConfigError(f"the scheduler {name} has no noise levels that transitions can be read from; {_USE}")
    # The scheduler's own levels; some are made from more than the betas of their configuration.
    levels = scheduler.alphas_cumprod.double().cpu()
    final_level = torch.ones((), dtype=torch.float64) if ends_clean(scheduler) else levels[0]
    total, steps = int(config["num_train_timesteps"]), timesteps_of(scheduler, num_steps)
    alphas = torch.cat([levels[steps], final_level[None]])
    if float(alphas[0]) == 0 and read_parametrisation(scheduler) == "epsilon":
        raise ConfigError(
            f"the scheduler {name} begins at pure noise (rescale_betas_zero_snr with timestep_spacing ="
            f" {config.get('timestep_spacing')!r}), of which a prediction of noise says nothing; write timestep_spacing"
            " = 'leading' into its scheduler_config.json, or take a model with v_prediction"
        )
    time = torch.cat([steps.double() + 1, torch.zeros(1, dtype=torch.float64)]) / total
    return Schedule(steps.double(), time, alphas.sqrt(), (1 - alphas).clamp(min=0).sqrt(), "variance_preserving")


def timesteps_of(scheduler: Any, num_steps: int) -> Tensor:
    """Returns the whole timesteps at which transitions start, `[S]`: the scheduler's own; those of DDIM with its spacing
    where its own are not whole, or where it visits some of them twice (PNDM, Heun).

    Example:
        >>> from diffusers import DDIMScheduler, DPMSolverMultistepScheduler
        >>> [
        ...     timesteps_of(of(timestep_spacing="linspace"), 4).tolist()
        ...     for of in (DDIMScheduler, DPMSolverMultistepScheduler)
        ... ]
        [[999, 666, 333, 0], [999, 749, 500, 250]]
    """  # noqa: E501
    own = copy.deepcopy(scheduler)
    own.set_timesteps(num_steps)
    steps = own.timesteps.cpu()
    if len(steps) != num_steps or not torch.equal(steps, steps.round()) or bool((steps[1:] >= steps[:-1]).any()):
        ddim = _as_ddim(scheduler)
        ddim.set_timesteps(num_steps)
        steps = ddim.timesteps.cpu()
    return steps.long()


def ends_clean(scheduler: Any) -> bool:
    """Tests that a scheduler's last step ends at an image without noise, not at its smallest level."""
    config = scheduler.config
    return bool(config.get("set_alpha_to_one", True)) and config.get("final_sigmas_type", "zero") == "zero"


def with_stated_levels(scheduler: Any) -> Any:
    """Replaces schedulers of flow matching that visit levels twice (Heun's), or that take no list of levels, by Euler's
    of the same shift.
    """
    from diffusers.schedulers.scheduling_flow_match_euler_discrete import FlowMatchEulerDiscreteScheduler

    if type(scheduler).__name__ == "FlowMatchHeunDiscreteScheduler":
        return FlowMatchEulerDiscreteScheduler.from_config(scheduler.config)
    if "sigmas" in inspect.signature(scheduler.set_timesteps).parameters:
        return scheduler
    config = scheduler.config
    names = ("num_train_timesteps", "use_dynamic_shifting", "time_shift_type", "shift_terminal")
    settings = {name: config[name] for name in names if config.get(name) is not None}
    return FlowMatchEulerDiscreteScheduler(shift=config.get("flow_shift", 1.0), **settings)


def _as_ddim(scheduler: Any) -> Any:
    from diffusers.schedulers.scheduling_ddim import DDIMScheduler

    if isinstance(scheduler, DDIMScheduler):
        return scheduler
    config = scheduler.config
    # Both are passed explicitly: diffusers replaces a setting that has one class's default by the other class's.
    spaced = {
        "timestep_spacing": config.get("timestep_spacing", "leading"),
        "steps_offset": config.get("steps_offset", 0),
    }
    return DDIMScheduler.from_config(config, clip_sample=False, **spaced)
