"""DanceGRPO's sampler: the stochastic equation that has the flow's marginals, with noise of constant size."""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal, final

from pydantic import AfterValidator, Field

from groupwise.config import Config
from groupwise.domain.diffusion.sampler.noise_level import noisy
from groupwise.domain.diffusion.sampler.step import Spread, Step


@final
class DanceSDE(Config):
    """`x' = x + (v + eta^2 e / (2 s)) (s' - s) + eta sqrt(s - s') z`: kept noise `s' - eta^2 (s - s') / (2 s)`.

    Args:
        noise: `eta`, the standard deviation per square root of time.

    Example:
        >>> from groupwise.domain.diffusion.noise_schedule import flow_schedule
        >>> import torch
        >>> spread = DanceSDE(noise=0.5)(Step.of(flow_schedule([0.5, 0.25, 0.0]), torch.tensor([0])))
        >>> spread.kept.item(), spread.std.item()  # 0.25 - 0.25 * 0.25 / (2 * 0.5), 0.5 * 0.5
        (0.1875, 0.25)

    Source: Xue et al. 2025, arXiv 2505.07818, section 3.
    """

    stochastic: ClassVar[bool] = True
    flow_only: ClassVar[bool] = True
    kind: Literal["dance_sde"] = "dance_sde"
    noise: Annotated[float, Field(allow_inf_nan=False), AfterValidator(noisy("noise", 0.3))] = 0.3

    def __call__(self, step: Step) -> Spread:
        """Returns the factor of the predicted noise and the standard deviation of the new noise."""
        variance = self.noise**2 * step.size
        return Spread(step.next_noise - variance / (2 * step.noise), variance.sqrt())
