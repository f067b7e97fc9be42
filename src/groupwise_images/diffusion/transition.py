"""One Gaussian transition `x' = mean + std z`: its mean from the model's prediction, and its log-prob in the configured
unit.
"""

import copy
import inspect
import math
from dataclasses import dataclass
from typing import Any, Literal, final

import numpy as np
import torch
from torch import Tensor

from groupwise.config import ConfigError
from groupwise_images.diffusion.config import Reduce
from groupwise_images.diffusion.sampler import Sampler, Spread, Step

# The noise levels of a sampling run, read from a diffusers scheduler: `x_i = signal_i x0 + noise_i e`, from `i = 0`
# (noise) to `i = S` (an image).

Parametrisation = Literal["flow", "epsilon", "v_prediction", "sample"]
"""The prediction of a model, for `x = a x0 + b e`: the velocity `e - x0`, the noise `e`, `a e - b x0`, or `x0`."""

_OTHER_LEVELS = ("use_karras_sigmas", "use_exponential_sigmas", "use_beta_sigmas", "use_lu_lambdas")
"""Settings by which a solver replaces the levels of its spacing."""

_USE = "use DDIMScheduler or FlowMatchEulerDiscreteScheduler"


@final
@dataclass(frozen=True)
class Schedule:
    """Noise levels of `S` transitions, fp64.

    Args:
        timestep: `[S]`, the timestep that the model is given at the start of each transition.
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
                f" steps, or {_USE}"
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
    return type(scheduler).__name__.startswith("FlowMatch") or _has(scheduler, "use_flow_sigmas")


def levels_at(scheduler: Any, time: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Returns timestep, signal and noise of a diffusers scheduler at times in (0, 1)."""
    total = int(scheduler.config.num_train_timesteps)
    if is_flow(scheduler):
        return time * total, 1 - time, time
    index = (time * total).long().clamp(max=total - 1)
    alphas = scheduler.alphas_cumprod.to(time)[index]
    return index.to(time), alphas.sqrt(), (1 - alphas).sqrt()


def flow_schedule(sigmas: list[float], num_train_timesteps: int = 1000) -> Schedule:
    """Builds the schedule of a flow with these noise levels, the last of them 0."""
    noise = torch.tensor(sigmas, dtype=torch.float64)
    return Schedule(noise[:-1] * num_train_timesteps, noise, 1 - noise, noise, "flow")


def read_schedule(
    scheduler: Any, num_steps: int, *, spacing: Literal["uniform", "scheduler"] = "uniform", shift: float | None = None
) -> Schedule:
    """Reads the noise levels that a diffusers scheduler gives `num_steps` transitions.

    Args:
        scheduler: flow matching, or any with `alphas_cumprod`; its own levels after `set_timesteps`, the last of them
            where its own last step ends.
        spacing: the spacing of a flow's levels before its shift: `uniform` is `1, ..., 1/S` and then 0, so that every
            transition takes away its share of the noise; `scheduler` is the scheduler's own, which ends at its smallest
            level (0.001) and then 0: the last but one transition then carries nearly all of the last one's noise to the
            image, and the last one has nothing to do.
        shift: the resolution-dependent `mu` of schedulers with dynamic shifting.

    Raises:
        ConfigError: the scheduler is of another family, has other levels than one a step, or clips (a clip has no
            gradient).
    """
    name = type(scheduler).__name__
    config = scheduler.config
    if clips := [key for key in ("clip_sample", "thresholding") if _has(scheduler, key)]:
        reason = (
            f"where it clips there is no gradient; write {clips[0]} = false into the model's scheduler_config.json (for"
            " a model made here, "
        )
        raise ConfigError(
            f"the scheduler {name} has {clips[0]} = true: {reason}domain.model.scheduler.settings.{clips[0]} = false)"
        )
    if is_flow(scheduler):
        return _read_flow(scheduler, num_steps, spacing, {} if shift is None else {"mu": shift})
    if not hasattr(scheduler, "alphas_cumprod"):
        raise ConfigError(f"the scheduler {name} has no noise levels that transitions can be read from; {_USE}")
    timestep, alphas = _own_alphas(scheduler, num_steps)
    if float(alphas[0]) == 0 and read_parametrisation(scheduler) == "epsilon":
        raise ConfigError(
            f"the scheduler {name} begins at pure noise (rescale_betas_zero_snr with timestep_spacing ="
            f" {config.get('timestep_spacing')!r}), of which a prediction of noise says nothing; write timestep_spacing"
            " = 'leading' into its scheduler_config.json, or take a model with v_prediction"
        )
    time = torch.cat([_place(scheduler, alphas[:-1]), torch.zeros(1, dtype=torch.float64)])
    return Schedule(timestep, time, alphas.sqrt(), (1 - alphas).clamp(min=0).sqrt(), "variance_preserving")


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


def replaced_remark(scheduler: Any) -> list[str]:
    """Returns a remark where the noise levels of a run are not those of the model's own class of schedulers."""
    if not is_flow(scheduler) or (other := with_stated_levels(scheduler)) is scheduler:
        return []
    own, used = type(scheduler).__name__, type(other).__name__
    return [f"scheduler: {own} is replaced by {used} of the same shift, whose levels can be stated one a step"]


def _has(scheduler: Any, key: str) -> bool:
    """Tests that a setting is on which the scheduler's class reads. `from_config` also keeps the keys of the class that
    a configuration was written by.
    """
    inits = [vars(family)["__init__"] for family in type(scheduler).__mro__ if "__init__" in vars(family)]
    return bool(scheduler.config.get(key)) and any(key in inspect.signature(init).parameters for init in inits)


def _read_flow(scheduler: Any, num_steps: int, spacing: str, shift: dict[str, float]) -> Schedule:
    """Reads the levels of a flow. Those of a solver with Karras' (or other such) levels are always its own."""
    solver = not type(scheduler).__name__.startswith("FlowMatch")
    if spacing == "scheduler" or (solver and any(_has(scheduler, key) for key in _OTHER_LEVELS)):
        timestep, sigmas = _own_levels(scheduler, num_steps, shift)
    else:
        flow = with_stated_levels(scheduler)
        flow.set_timesteps(sigmas=np.array([1 - step / num_steps for step in range(num_steps)]), **shift)
        timestep, sigmas = flow.timesteps.double().cpu(), flow.sigmas.double().cpu()
        if solver:
            sigmas[-1] = _own_levels(scheduler, num_steps, shift)[1][-1]
    if float(sigmas.max()) > 1:
        raise ConfigError(
            f"the scheduler {type(scheduler).__name__} has noise levels up to {float(sigmas.max()):.3g}, and a flow's"
            f" are at most 1; write {', '.join(_OTHER_LEVELS)} = false into the model's scheduler_config.json"
        )
    # A few schedulers begin a millionth below pure noise, where they would divide by 0.
    return Schedule(timestep, sigmas, 1 - sigmas, sigmas, "flow")


def _own_alphas(scheduler: Any, num_steps: int) -> tuple[Tensor, Tensor]:
    """Returns the scheduler's own timesteps `[S]` and shares of signal `[S + 1]`, the last of them where its last step
    ends.
    """
    if hasattr(scheduler, "sigmas"):
        timestep, sigmas = _own_levels(scheduler, num_steps, {})
        return timestep, 1 / (1 + sigmas.square())
    own = copy.deepcopy(scheduler)
    own.set_timesteps(num_steps)
    # PNDM evaluates some steps several times; this is where they begin.
    steps = torch.as_tensor(np.asarray(own._timesteps)[::-1].copy()) if hasattr(own, "_timesteps") else own.timesteps
    _check_number(scheduler, len(steps), num_steps)
    # The scheduler's own levels; some are made from more than the betas of their configuration.
    levels = scheduler.alphas_cumprod.double().cpu()
    final_level = torch.as_tensor(getattr(own, "final_alpha_cumprod", 1.0), dtype=torch.float64)
    return steps.double().cpu(), torch.cat([levels[steps.long().cpu()], final_level.cpu()[None]])


def _own_levels(scheduler: Any, num_steps: int, shift: dict[str, float]) -> tuple[Tensor, Tensor]:
    """Returns the scheduler's own timesteps `[S]` and ratios of noise to signal (of a flow, noise levels) `[S + 1]`."""
    own = copy.deepcopy(scheduler)
    own.set_timesteps(num_steps, **shift)
    timestep, sigmas = own.timesteps.double().cpu(), own.sigmas.double().cpu()
    if len(timestep) != num_steps:
        # Solvers of second order (Heun, KDPM2) list a level twice, and a step begins at the second of them.
        begins = (sigmas[: len(timestep)] != sigmas[1 : len(timestep) + 1]).nonzero()[:, 0]
        _check_number(scheduler, len(begins), num_steps)
        timestep, sigmas = timestep[begins], torch.cat([sigmas[begins], sigmas[-1:]])
    return timestep, sigmas


def _check_number(scheduler: Any, num_levels: int, num_steps: int) -> None:
    if num_levels != num_steps:
        raise ConfigError(
            f"the scheduler {type(scheduler).__name__} has {num_levels} noise levels for {num_steps} steps, which"
            f" transitions cannot be read from; {_USE}"
        )


def _place(scheduler: Any, alphas: Tensor) -> Tensor:
    """Finds levels among those of training: the share of its steps, `(t + 1) / T`."""
    levels, number = scheduler.alphas_cumprod.double().cpu(), len(scheduler.alphas_cumprod)
    log_ratios = [-torch.logit(values, eps=1e-12).numpy() for values in (alphas, levels)]
    return (torch.from_numpy(np.interp(log_ratios[0], log_ratios[1], np.arange(number))) + 1) / number


_HALF_LOG_TWO_PI = 0.5 * math.log(2 * math.pi)


@final
@dataclass(frozen=True)
class Transition:
    """Gaussians over the next latents, independent over elements.

    Args:
        mean: `[N, ...]`, with gradient where the prediction has it.
        std: `[N]`, of every element; 0 where the transition is deterministic.
        step_size: `[N]`, the time it takes.
    """

    mean: Tensor
    std: Tensor
    step_size: Tensor

    def draw(self, noise: Tensor) -> Tensor:
        """Draws `mean + std z` for `noise` `[N, ...]`, detached: an action is not a function of the policy."""
        return (self.mean + over_images(self.std, self.mean) * noise).detach()

    def standardised(self, after: Tensor) -> Tensor:
        """Computes `(x' - mean) / std`, `[N, ...]`."""
        return (after - self.mean) / over_images(self.std, self.mean)

    def log_prob(self, after: Tensor, reduce: Reduce) -> Tensor:
        """Computes `log N(x'; mean, std)` of each element, reduced: `[N]`, or `[N, D]` for `per_element`. In the
        latents' dtype.

        Example:
            >>> import torch
            >>> step = Transition(torch.zeros(1, 2), torch.ones(1), torch.ones(1))
            >>> value = step.log_prob(
            ...     torch.tensor([[0.0, 2.0]]), "mean"
            ... )  # mean of -log sqrt(2 pi) and -2 - log sqrt(2 pi)
            >>> round(value.item() + 0.5 * math.log(2 * math.pi), 6)
            -1.0
        """
        log_probs = -0.5 * self.standardised(after).square() - over_images(self.std, self.mean).log() - _HALF_LOG_TWO_PI
        return reduced(log_probs, reduce)

    def entropy(self, reduce: Reduce) -> Tensor:
        """Computes `log(std sqrt(2 pi e))` of each element, reduced. The schedule fixes it, so it has no gradient."""
        entropies = over_images(self.std, self.mean).log() + _HALF_LOG_TWO_PI + 0.5
        return reduced(entropies.expand_as(self.mean), reduce).detach()

    def divergence(self, reference_mean: Tensor, reduce: Reduce) -> Tensor:
        """Computes `(mean - reference)^2 / (2 std^2)` of each element, reduced: the exact divergence from a Gaussian of
        the same spread.
        """
        return reduced(0.5 * ((self.mean - reference_mean) / over_images(self.std, self.mean)).square(), reduce)

    def shift(self, old_mean: Tensor, after: Tensor, reduce: Reduce) -> Tensor:
        """Computes `z (mean - old)` with the noise `z` that was drawn around `old`; the mean over elements, or one
        number an element for `per_element`.
        """
        noise = (after - old_mean) / over_images(self.std, self.mean)
        return reduced(noise * (self.mean - old_mean), "per_element" if reduce == "per_element" else "mean")

    def score_norm(self, after: Tensor, reduce: Reduce) -> Tensor:
        """Computes `|(x' - mean) / std|`: the norm over elements, or one number an element for `per_element`. Without
        gradient.
        """
        standard = self.standardised(after).detach().flatten(1)
        return standard.abs() if reduce == "per_element" else standard.norm(dim=1)


def transition(
    sampler: Sampler, parametrisation: Parametrisation, latents: Tensor, prediction: Tensor, step: Step
) -> Transition:
    """Computes the Gaussian from which a sampler draws the next latents.

    `mean = a' x0 + kept e`, where `x0` and `e` are what the prediction says of `latents = a x0 + b e`. Both are linear
    in latents and prediction, so the mean is `A x + B prediction` with numbers `A`, `B` computed in fp64.

    Args:
        sampler: how much of the predicted noise is kept, and how much is new.
        parametrisation: what the prediction is.
        latents, prediction: `[N, ...]` of one dtype, at least fp32.
        step: noise levels of the `N` transitions.

    Returns:
        Mean, standard deviation and step size.
    """
    spread = sampler(step)
    of_latents, of_prediction = _weights(parametrisation, step, spread)
    mean = over_images(of_latents, latents) * latents + over_images(of_prediction, latents) * prediction
    return Transition(mean, spread.std.to(latents), step.size.to(latents))


def reduced(values: Tensor, reduce: Reduce) -> Tensor:
    """Reduces `[N, ...]` elements to the unit of a decision.

    Example:
        >>> import torch
        >>> elements = torch.full((1, 4), 3.0)
        >>> [reduced(elements, unit).item() for unit in ("mean", "sum", "sqrt")]
        [3.0, 12.0, 6.0]
    """
    flat = values.flatten(1)
    if reduce == "per_element":
        return flat
    if reduce == "mean":
        return flat.mean(1)
    total = flat.sum(1)
    return total / math.sqrt(flat.shape[1]) if reduce == "sqrt" else total


def _weights(parametrisation: Parametrisation, step: Step, spread: Spread) -> tuple[Tensor, Tensor]:
    a, b, after, predicted_noise = step.signal, step.noise, step.next_signal, spread.kept
    if parametrisation == "flow":
        return after + predicted_noise, predicted_noise * a - after * b
    if parametrisation == "epsilon":
        return after / a, predicted_noise - after * b / a
    if parametrisation == "v_prediction":
        return after * a + predicted_noise * b, predicted_noise * a - after * b
    return predicted_noise / b, after - predicted_noise * a / b


def over_images(value: Tensor, images: Tensor) -> Tensor:
    """Shapes one number a row so that it multiplies the images of its row."""
    return value.to(images).view(-1, *[1] * (images.dim() - 1))
