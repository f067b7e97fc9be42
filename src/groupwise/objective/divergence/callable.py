"""A class of your own that measures the distance from the reference, by import path."""

from __future__ import annotations

from typing import ClassVar, final

from groupwise.config import FromPath
from groupwise.objective.penalty import Penalty
from groupwise.objective.slot import DivergenceSlot
from groupwise.schedule import AnySchedule


@final
class CallableDivergence(FromPath, DivergenceSlot):
    """What the class at `path` does, configured by `settings`.

    The class extends `Penalty`, which lists what it may state.

    Example:
        >>> CallableDivergence(path="groupwise.objective.divergence.k2:K2").against
        'reference'
    """

    base: ClassVar[type[Penalty]] = Penalty

    beta: ClassVar[AnySchedule]
    against: ClassVar[str]
    place: ClassVar[str]
