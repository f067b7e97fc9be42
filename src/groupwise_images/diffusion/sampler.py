"""Samplers of one transition. A new one is a class in the union `Sampler`."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, ClassVar, Literal, final

from pydantic import Field

from groupwise.config import Config

if TYPE_CHECKING:
    from torch import Tensor

    from groupwise_images.diffusion.transition import Schedule


# Without noise a transition has no log-prob to train by.
Level = Annotated[float, Field(gt=0, allow_inf_nan=False)]
Share = Annotated[float, Field(gt=0, le=1, allow_inf_nan=False)]

# The input and output of a sampler: the noise levels at both ends of a transition; the factor of the predicted noise
# and the standard deviation of the new noise.
#
# Every sampler here is of one form. With `x = a x0 + b e` at the transition's start and `a', b'` at its end, the
# model's prediction gives `x0` and `e`, and
#
#     x' = a' x0 + kept e + std z,    z ~ N(0, 1)
#
# Imports no torch: a configuration loads fast.


@final
@dataclass(frozen=True)
class Step:
    """Noise levels at the start and the end of `N` transitions, fp64.

    Args:
        signal, noise, time: `[N]`, at the start.
        next_signal, next_noise, next_time: `[N]`, at the end.
        flow: whether `signal = 1 - noise` (else `signal^2 + noise^2 = 1`).
    """

    signal: Tensor
    noise: Tensor
    time: Tensor
    next_signal: Tensor
    next_noise: Tensor
    next_time: Tensor
    flow: bool

    @staticmethod
    def of(schedule: Schedule, index: Tensor) -> Step:
        """Selects transitions `index` `[N]` of a schedule."""
        levels = (schedule.signal, schedule.noise, schedule.time)
        ends = [level[places] for places in (index, index + 1) for level in levels]
        return Step(*ends, flow=schedule.kind == "flow")

    @property
    def size(self) -> Tensor:
        """`[N]`, the time a transition takes, positive."""
        return self.time - self.next_time


@final
@dataclass(frozen=True)
class Spread:
    """The mean and the spread of a transition's noise.

    Args:
        kept: `[N]`, factor of the predicted noise in the mean.
        std: `[N]`, standard deviation of the new noise; 0 where there is none.
    """

    kept: Tensor
    std: Tensor


class _Sampler(Config):
    """Whether a sampler draws new noise, and whether it is made for flows alone."""

    stochastic: ClassVar[bool] = True
    flow_only: ClassVar[bool] = False


@final
class DDIM(_Sampler):
    """`x' = a' x0 + sqrt(b'^2 - std^2) e + std z`, `std = eta (b'/b) sqrt(b^2 - (a b'/a')^2)`.

    For a variance-preserving schedule this is `eta sqrt((1 - abar') / (1 - abar)) sqrt(1 - abar / abar')`. The last
    transition, to `b' = 0`, has no noise.

    Args:
        eta: share of the ancestral standard deviation, above 0 and at most 1.

    Example:
        >>> from groupwise_images.diffusion.transition import flow_schedule
        >>> import torch
        >>> spread = DDIM(eta=0.6)(Step.of(flow_schedule([1.0, 0.5, 0.0]), torch.tensor([0])))
        >>> round(spread.kept.item(), 6), round(spread.std.item(), 6)  # 0.5 sqrt(1 - 0.36), 0.5 * 0.6
        (0.4, 0.3)

    Source: Song et al. 2020, arXiv 2010.02502, equations 12 and 16; log-probs of its transitions: Black et al. 2023,
    arXiv 2305.13301.
    """

    kind: Literal["ddim"] = "ddim"
    eta: Share = 1.0

    def __call__(self, step: Step) -> Spread:
        """Returns the factor of the predicted noise and the standard deviation of the new noise."""
        ancestral = (step.noise**2 - (step.signal * step.next_noise / step.next_signal) ** 2).clamp(
            min=0
        ).sqrt() / step.noise
        std = self.eta * step.next_noise * ancestral
        return Spread((step.next_noise**2 - std**2).clamp(min=0).sqrt(), std)


@final
class FlowSDE(_Sampler):
    """`x' = x + (v + g^2 e / (2 s)) (s' - s) + g sqrt(s - s') z` with `g = a sqrt(s / (1 - s))` and the score `-e / s`:
    kept noise `s' - g^2 (s - s') / (2 s)`.

    At `s = 1`, where `g` has no limit, `1 - s` is taken at the transition's end, as Flow-GRPO's code does.

    Args:
        noise: `a`, the level of the noise.

    Example:
        >>> from groupwise_images.diffusion.transition import flow_schedule
        >>> import torch
        >>> spread = FlowSDE(noise=1.0)(Step.of(flow_schedule([0.5, 0.25, 0.0]), torch.tensor([0])))
        >>> spread.kept.item(), spread.std.item()  # g = 1: 0.25 - 0.25 / (2 * 0.5), 1 * sqrt(0.25)
        (0.0, 0.5)

    Source: Liu et al. 2025, arXiv 2505.05470, section 4.2.
    """

    flow_only: ClassVar[bool] = True
    kind: Literal["flow_sde"] = "flow_sde"
    noise: Level = 0.7

    def __call__(self, step: Step) -> Spread:
        """Returns the factor of the predicted noise and the standard deviation of the new noise."""
        remaining_signal = (1 - step.noise).where(step.noise < 1, 1 - step.next_noise)
        variance = self.noise**2 * step.noise / remaining_signal * step.size
        return Spread(step.next_noise - variance / (2 * step.noise), variance.sqrt())


@final
class Auto(_Sampler):
    """`flow_sde` of this `noise` where the model's scheduler is one of flow matching, `ddim` of this `eta` where it is
    not.

    Args:
        noise: of `flow_sde`.
        eta: of `ddim`.

    Example:
        >>> from groupwise_images.diffusion.transition import flow_schedule
        >>> import torch
        >>> step = Step.of(flow_schedule([1.0, 0.5, 0.0]), torch.tensor([0]))
        >>> Auto()(step) == FlowSDE(noise=0.7)(step)
        True

    Source: Liu et al. 2025, arXiv 2505.05470 (flow matching); Song et al. 2020, arXiv 2010.02502 (otherwise).
    """

    kind: Literal["auto"] = "auto"
    noise: Level = 0.7
    eta: Share = 1.0

    def __call__(self, step: Step) -> Spread:
        """Returns the factor of the predicted noise and the standard deviation of the new noise."""
        return FlowSDE(noise=self.noise)(step) if step.flow else DDIM(eta=self.eta)(step)


@final
class CPS(_Sampler):
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
        >>> from groupwise_images.diffusion.transition import flow_schedule
        >>> import torch
        >>> spread = CPS(eta=0.5)(Step.of(flow_schedule([1.0, 0.5, 0.0]), torch.tensor([0])))
        >>> round((spread.kept**2 + spread.std**2).item(), 6)
        0.25

    Source: Wang and Yu 2025, arXiv 2509.05952.
    """

    kind: Literal["cps"] = "cps"
    eta: Share = 0.7

    def __call__(self, step: Step) -> Spread:
        """Returns the factor of the predicted noise and the standard deviation of the new noise."""
        angle = self.eta * math.pi / 2
        return Spread(step.next_noise * math.cos(angle), step.next_noise * math.sin(angle))


@final
class DanceSDE(_Sampler):
    """`x' = x + (v + eta^2 e / (2 s)) (s' - s) + eta sqrt(s - s') z`: kept noise `s' - eta^2 (s - s') / (2 s)`.

    Args:
        noise: `eta`, the standard deviation per square root of time.

    Example:
        >>> from groupwise_images.diffusion.transition import flow_schedule
        >>> import torch
        >>> spread = DanceSDE(noise=0.5)(Step.of(flow_schedule([0.5, 0.25, 0.0]), torch.tensor([0])))
        >>> spread.kept.item(), spread.std.item()  # 0.25 - 0.25 * 0.25 / (2 * 0.5), 0.5 * 0.5
        (0.1875, 0.25)

    Source: Xue et al. 2025, arXiv 2505.07818, section 3.
    """

    flow_only: ClassVar[bool] = True
    kind: Literal["dance_sde"] = "dance_sde"
    noise: Level = 0.3

    def __call__(self, step: Step) -> Spread:
        """Returns the factor of the predicted noise and the standard deviation of the new noise."""
        variance = self.noise**2 * step.size
        return Spread(step.next_noise - variance / (2 * step.noise), variance.sqrt())


@final
class ODE(_Sampler):
    """`x' = a' x0 + b' e`: a flow's `x + v (s' - s)`.

    Example:
        >>> from groupwise_images.diffusion.transition import flow_schedule
        >>> import torch
        >>> spread = ODE()(Step.of(flow_schedule([1.0, 0.5, 0.0]), torch.tensor([0])))
        >>> spread.kept.item(), spread.std.item()
        (0.5, 0.0)

    Source: Song et al. 2020, arXiv 2010.02502, equation 13 (DDIM); Liu et al. 2022, arXiv 2209.03003 (rectified flow).
    """

    stochastic: ClassVar[bool] = False
    kind: Literal["ode"] = "ode"

    def __call__(self, step: Step) -> Spread:
        """Returns all of the predicted noise, and no new noise."""
        return Spread(step.next_noise, 0 * step.next_noise)


Sampler = Annotated[Auto | DDIM | FlowSDE | DanceSDE | CPS | ODE, Field(discriminator="kind")]
"""Any sampler, chosen by `kind`."""
