"""The noise levels at which copies of a sample are noised."""

from typing import Literal, Self, final

import torch
from jaxtyping import Float
from pydantic import Field, model_validator
from torch import Tensor

from groupwise.config import Config
from groupwise.objective.slot import MatchingSlot

_EDGE = 1e-6
"""The distance that quantiles of a normal distribution keep from 0 and 1, where they are infinite."""


@final
class NoiseTimes(Config):
    """`num` times a sample, one in each of `num` equal parts of `low .. high`, so that no sample has low noise alone.

    Example:
        >>> NoiseTimes(num=2, levels="uniform").at(torch.full((1, 2), 0.5)).tolist()
        [[0.25, 0.75]]
        >>> NoiseTimes(num=2, levels="uniform", shift=3.0).at(torch.full((1, 2), 0.5, dtype=torch.float64)).numpy()
        array([[0.5, 0.9]])
    """

    levels: Literal["schedule", "uniform", "logit_normal"] = "schedule"
    """`schedule` takes the sampler's own noise levels, `uniform` and `logit_normal` any between."""
    num: int = Field(default=6, ge=1, le=1024)
    """Noised copies of each sample."""
    low: float = Field(default=0.0, ge=0, lt=1)
    """The least noise, as a share of the schedule; 0 means the sample itself."""
    high: float = Field(default=1.0, gt=0, le=1)
    """The most noise; 1 means noise alone."""
    shift: float = Field(default=1.0, gt=0, le=100)
    """`t -> s t / (1 + (s - 1) t)` moves times towards noise where `s` is above 1; a schedule has its own shift."""

    @model_validator(mode="after")
    def _sound(self) -> Self:
        if self.low >= self.high:
            raise ValueError(f"low = {self.low:g} must lie below high = {self.high:g}; write for example low = 0")
        if self.levels == "schedule" and self.shift != 1.0:
            raise ValueError(
                f"shift = {self.shift:g} has no effect on levels = 'schedule', which are the sampler's own; leave"
                " it out, or write levels = 'uniform'"
            )
        return self

    def at(self, uniform: Float[Tensor, "B K"]) -> Float[Tensor, "B K"]:
        """Returns times in (0, 1) for uniform numbers in [0, 1), one column a part.

        Args:
            uniform: `[B, num]`.
        """
        part = (torch.arange(self.num, device=uniform.device) + uniform) / self.num
        time = self.low + (self.high - self.low) * part
        if self.levels == "logit_normal":
            time = torch.special.ndtri(time.clamp(_EDGE, 1 - _EDGE)).sigmoid()
        return self.shift * time / (1 + (self.shift - 1) * time)


class NoisedCopies(MatchingSlot):
    """A matching with its noise levels. A user's class extends it and writes `__call__`.

    Example:
        >>> class Plain(NoisedCopies):
        ...     def __call__(self, deviation):
        ...         return {"log_prob": -deviation.live.square().mean(1)}
        >>> Plain().times.num, Plain().deterministic
        (6, True)
    """

    times: NoiseTimes = NoiseTimes()
    """The noise levels of the copies."""
    deterministic: bool = True
    """Whether groups are drawn without noise, as evaluations are; false takes the domain's sampler."""
