"""The input and output of a sampler: the noise levels at both ends of a transition; the factor of the predicted noise
and the standard deviation of the new noise.

Every sampler here is of one form. With `x = a x0 + b e` at the transition's start and `a', b'` at its end, the model's
prediction gives `x0` and `e`, and

    x' = a' x0 + kept e + std z,    z ~ N(0, 1)

Imports no torch: a configuration loads fast.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, final

if TYPE_CHECKING:
    from torch import Tensor

    from groupwise.domain.diffusion.noise_schedule import Schedule


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
        end = index + 1
        return Step(
            schedule.signal[index],
            schedule.noise[index],
            schedule.time[index],
            schedule.signal[end],
            schedule.noise[end],
            schedule.time[end],
            schedule.kind == "flow",
        )

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
