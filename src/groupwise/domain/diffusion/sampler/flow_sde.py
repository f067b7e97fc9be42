"""Flow-GRPO's sampler: the stochastic equation that has the flow's marginals, with noise that grows towards
the start.
"""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal, final

from pydantic import AfterValidator, Field

from groupwise.config import Config
from groupwise.domain.diffusion.sampler.noise_level import noisy
from groupwise.domain.diffusion.sampler.step import Spread, Step


@final
class FlowSDE(Config):
    """`x' = x + (v + g^2 e / (2 s)) (s' - s) + g sqrt(s - s') z` with `g = a sqrt(s / (1 - s))` and the score `-e / s`:
    kept noise `s' - g^2 (s - s') / (2 s)`.

    At `s = 1`, where `g` has no limit, `1 - s` is taken at the transition's end, as Flow-GRPO's code does.

    Args:
        noise: `a`, the level of the noise.

    Example:
        >>> from groupwise.domain.diffusion.noise_schedule import flow_schedule
        >>> import torch
        >>> spread = FlowSDE(noise=1.0)(Step.of(flow_schedule([0.5, 0.25, 0.0]), torch.tensor([0])))
        >>> spread.kept.item(), spread.std.item()  # g = 1: 0.25 - 0.25 / (2 * 0.5), 1 * sqrt(0.25)
        (0.0, 0.5)

    Source: Liu et al. 2025, arXiv 2505.05470, section 4.2.
    """

    stochastic: ClassVar[bool] = True
    flow_only: ClassVar[bool] = True
    kind: Literal["flow_sde"] = "flow_sde"
    noise: Annotated[float, Field(allow_inf_nan=False), AfterValidator(noisy("noise", 0.7))] = 0.7

    def __call__(self, step: Step) -> Spread:
        """Returns the factor of the predicted noise and the standard deviation of the new noise."""
        remaining_signal = (1 - step.noise).where(step.noise < 1, 1 - step.next_noise)
        variance = self.noise**2 * step.noise / remaining_signal * step.size
        return Spread(step.next_noise - variance / (2 * step.noise), variance.sqrt())
