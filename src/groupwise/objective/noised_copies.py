"""The settings of every kind that learns from noised copies."""

from __future__ import annotations

from groupwise.objective.noise_times import NoiseTimes
from groupwise.objective.slot import MatchingSlot


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
