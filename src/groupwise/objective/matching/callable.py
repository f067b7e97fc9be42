"""A user's class that learns from noised copies, by import path."""

from __future__ import annotations

from typing import ClassVar, final

from groupwise.config import PieceFromPath
from groupwise.objective.noise_times import NoiseTimes
from groupwise.objective.noised_copies import NoisedCopies
from groupwise.objective.slot import MatchingSlot


@final
class CallableMatching(PieceFromPath, MatchingSlot):
    """The piece whose class is at `path`, configured by `settings`.

    The class extends `NoisedCopies`, which lists the class variables that it may set.

    Example:
        >>> path = "groupwise.objective.matching.mirrored:Mirrored"
        >>> CallableMatching(path=path, settings={"strength": 0.1}).piece.clip
        5.0
    """

    base: ClassVar[type[NoisedCopies]] = NoisedCopies

    times: ClassVar[NoiseTimes]
    deterministic: ClassVar[bool]
