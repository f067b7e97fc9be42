"""Coefficients-preserving sampling: new noise takes the place of predicted noise, so that every latent has exactly the
schedule's noise level.
"""

from __future__ import annotations

import math
from typing import Annotated, ClassVar, Literal, final

from pydantic import AfterValidator, Field

from groupwise.config import Config
from groupwise.domain.diffusion.sampler.noise_level import noisy
from groupwise.domain.diffusion.sampler.step import Spread, Step


@final
class CPS(Config):
    """`x' = a' x0 + b' cos(eta pi/2) e + b' sin(eta pi/2) z`.

    The two parts of the noise add up to the level `b'` of the schedule at any step size; Flow-GRPO's SDE leaves more
    noise in the image the larger its steps. The marginals are the flow's where the predicted noise is the real one. A
    model predicts the mean of what it could be, whose level is below `b'`: each transition loses variance, and more
    transitions do not give it back. Of Gaussian images of standard deviation .4, 10, 40 and 200 transitions of `eta` .7
    keep .292, .324 and .336: 16 % too little at 200, where `flow_sde` is within 1 %. Log-probs are the Gaussian's; the
    paper's code leaves `1 / (2 std^2)` out of them, which weighs transitions by their variance.

    Args:
        eta: above 0 (deterministic) and at most 1 (all noise is new).

    Example:
        >>> from groupwise.domain.diffusion.noise_schedule import flow_schedule
        >>> import torch
        >>> spread = CPS(eta=0.5)(Step.of(flow_schedule([1.0, 0.5, 0.0]), torch.tensor([0])))
        >>> round((spread.kept**2 + spread.std**2).item(), 6)
        0.25

    Source: Wang and Yu 2025, arXiv 2509.05952.
    """

    stochastic: ClassVar[bool] = True
    flow_only: ClassVar[bool] = False
    kind: Literal["cps"] = "cps"
    eta: Annotated[float, Field(le=1, allow_inf_nan=False), AfterValidator(noisy("eta", 0.7))] = 0.7

    def __call__(self, step: Step) -> Spread:
        """Returns the factor of the predicted noise and the standard deviation of the new noise."""
        angle = self.eta * math.pi / 2
        return Spread(step.next_noise * math.cos(angle), step.next_noise * math.sin(angle))
