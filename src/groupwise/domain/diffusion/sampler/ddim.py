"""DDIM with noise: between its deterministic form (eta 0) and DDPM's ancestral sampling (eta 1)."""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal, final

from pydantic import AfterValidator, Field

from groupwise.config import Config
from groupwise.domain.diffusion.sampler.noise_level import noisy
from groupwise.domain.diffusion.sampler.step import Spread, Step


@final
class DDIM(Config):
    """`x' = a' x0 + sqrt(b'^2 - std^2) e + std z`, `std = eta (b'/b) sqrt(b^2 - (a b'/a')^2)`.

    For a variance-preserving schedule this is `eta sqrt((1 - abar') / (1 - abar)) sqrt(1 - abar / abar')`. The last
    transition, to `b' = 0`, has no noise.

    Args:
        eta: share of the ancestral standard deviation, above 0 and at most 1.

    Example:
        >>> from groupwise.domain.diffusion.noise_schedule import flow_schedule
        >>> import torch
        >>> spread = DDIM(eta=0.6)(Step.of(flow_schedule([1.0, 0.5, 0.0]), torch.tensor([0])))
        >>> round(spread.kept.item(), 6), round(spread.std.item(), 6)  # 0.5 sqrt(1 - 0.36), 0.5 * 0.6
        (0.4, 0.3)

    Source: Song et al. 2020, arXiv 2010.02502, equations 12 and 16; log-probs of its transitions: Black et al. 2023,
    arXiv 2305.13301.
    """

    stochastic: ClassVar[bool] = True
    flow_only: ClassVar[bool] = False
    kind: Literal["ddim"] = "ddim"
    eta: Annotated[float, Field(le=1, allow_inf_nan=False), AfterValidator(noisy("eta", 1.0))] = 1.0

    def __call__(self, step: Step) -> Spread:
        """Returns the factor of the predicted noise and the standard deviation of the new noise."""
        ancestral = (step.noise**2 - (step.signal * step.next_noise / step.next_signal) ** 2).clamp(
            min=0
        ).sqrt() / step.noise
        std = self.eta * step.next_noise * ancestral
        return Spread((step.next_noise**2 - std**2).clamp(min=0).sqrt(), std)
