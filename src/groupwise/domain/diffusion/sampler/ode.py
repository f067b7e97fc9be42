"""The sampler without noise: Euler's step of a flow, DDIM with eta 0 otherwise. For evaluation; there is no log-prob to
train by.
"""

from __future__ import annotations

from typing import ClassVar, Literal, final

from groupwise.config import Config
from groupwise.domain.diffusion.sampler.step import Spread, Step


@final
class ODE(Config):
    """`x' = a' x0 + b' e`: a flow's `x + v (s' - s)`.

    Example:
        >>> from groupwise.domain.diffusion.noise_schedule import flow_schedule
        >>> import torch
        >>> spread = ODE()(Step.of(flow_schedule([1.0, 0.5, 0.0]), torch.tensor([0])))
        >>> spread.kept.item(), spread.std.item()
        (0.5, 0.0)

    Source: Song et al. 2020, arXiv 2010.02502, equation 13 (DDIM); Liu et al. 2022, arXiv 2209.03003 (rectified flow).
    """

    stochastic: ClassVar[bool] = False
    flow_only: ClassVar[bool] = False
    kind: Literal["ode"] = "ode"

    def __call__(self, step: Step) -> Spread:
        """Returns all of the predicted noise, and no new noise."""
        return Spread(step.next_noise, 0 * step.next_noise)
