"""A user's class that measures the distance from the reference, by import path."""

from __future__ import annotations

from typing import Any, ClassVar, final

from groupwise.config import PieceFromPath
from groupwise.objective.penalty import Penalty
from groupwise.objective.slot import DivergenceSlot
from groupwise.objective.slot_result import per_decision_problem
from groupwise.schedule import AnySchedule


@final
class CallableDivergence(PieceFromPath, DivergenceSlot):
    """The piece whose class is at `path`, configured by `settings`.

    The class extends `Penalty`, which lists the class variables that it may set.

    Example:
        >>> CallableDivergence(path="groupwise.objective.divergence.k2:K2").against
        'reference'
    """

    base: ClassVar[type[Penalty]] = Penalty

    beta: ClassVar[AnySchedule]
    against: ClassVar[str]
    place: ClassVar[str]

    def result_problem(self, result: Any, *arguments: Any) -> str:
        return per_decision_problem(result, arguments[1])
