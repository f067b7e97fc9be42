"""One Gaussian transition `x' = mean + std z`: its mean from the model's prediction, and its log-prob in the configured
unit.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import final

from torch import Tensor

from groupwise.domain.diffusion.config import Reduce
from groupwise.domain.diffusion.noise_schedule import Parametrisation
from groupwise.domain.diffusion.sampler import Sampler, Spread, Step

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
        """Draws `mean + std z` for `noise` `[N, ...]`, detached: an action is no function of the policy."""
        return (self.mean + _like(self.std, self.mean) * noise).detach()

    def standardised(self, after: Tensor) -> Tensor:
        """Computes `(x' - mean) / std`, `[N, ...]`."""
        return (after - self.mean) / _like(self.std, self.mean)

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
        log_probs = -0.5 * self.standardised(after).square() - _like(self.std, self.mean).log() - _HALF_LOG_TWO_PI
        return reduced(log_probs, reduce)

    def entropy(self, reduce: Reduce) -> Tensor:
        """Computes `log(std sqrt(2 pi e))` of each element, reduced. The schedule fixes it, so it has no gradient."""
        entropies = _like(self.std, self.mean).log() + _HALF_LOG_TWO_PI + 0.5
        return reduced(entropies.expand_as(self.mean), reduce).detach()

    def divergence(self, reference_mean: Tensor, reduce: Reduce) -> Tensor:
        """Computes `(mean - reference)^2 / (2 std^2)` of each element, reduced: the exact divergence from a Gaussian of
        the same spread.
        """
        return reduced(0.5 * ((self.mean - reference_mean) / _like(self.std, self.mean)).square(), reduce)

    def shift(self, old_mean: Tensor, after: Tensor, reduce: Reduce) -> Tensor:
        """Computes `z (mean - old)` with the noise `z` that was drawn around `old`; the mean over elements, or one
        number an element for `per_element`.
        """
        noise = (after - old_mean) / _like(self.std, self.mean)
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
    mean = _like(of_latents.to(latents), latents) * latents + _like(of_prediction.to(latents), latents) * prediction
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


def _like(value: Tensor, images: Tensor) -> Tensor:
    return value.view(-1, *[1] * (images.dim() - 1))
