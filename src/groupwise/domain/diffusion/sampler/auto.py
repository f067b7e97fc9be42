"""The sampler for a model of either kind: one whose images come to have the model's own distribution as the steps
become more.
"""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal, final

from pydantic import AfterValidator, Field

from groupwise.config import Config
from groupwise.domain.diffusion.sampler.ddim import DDIM
from groupwise.domain.diffusion.sampler.flow_sde import FlowSDE
from groupwise.domain.diffusion.sampler.noise_level import noisy
from groupwise.domain.diffusion.sampler.step import Spread, Step


@final
class Auto(Config):
    """`flow_sde` of this `noise` where the model's scheduler is one of flow matching, `ddim` of this `eta` where it is
    not.

    Args:
        noise: of `flow_sde`.
        eta: of `ddim`.

    Example:
        >>> from groupwise.domain.diffusion.noise_schedule import flow_schedule
        >>> import torch
        >>> step = Step.of(flow_schedule([1.0, 0.5, 0.0]), torch.tensor([0]))
        >>> Auto()(step) == FlowSDE(noise=0.7)(step)
        True

    Source: Liu et al. 2025, arXiv 2505.05470 (flow matching); Song et al. 2020, arXiv 2010.02502 (otherwise).
    """

    stochastic: ClassVar[bool] = True
    flow_only: ClassVar[bool] = False
    kind: Literal["auto"] = "auto"
    noise: Annotated[float, Field(allow_inf_nan=False), AfterValidator(noisy("noise", 0.7))] = 0.7
    eta: Annotated[float, Field(le=1, allow_inf_nan=False), AfterValidator(noisy("eta", 1.0))] = 1.0

    def __call__(self, step: Step) -> Spread:
        """Returns the factor of the predicted noise and the standard deviation of the new noise."""
        return FlowSDE(noise=self.noise)(step) if step.flow else DDIM(eta=self.eta)(step)
