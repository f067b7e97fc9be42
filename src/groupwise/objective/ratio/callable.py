"""A user's class that makes a level of log-ratios, by import path."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar, final

from groupwise.config import PieceFromPath
from groupwise.objective.slot import SCOPES, RatioSlot
from groupwise.objective.slot_result import per_decision_problem, statistics_problem
from groupwise.statistics import Statistic


@final
class CallableRatio(PieceFromPath, RatioSlot):
    """The piece whose class is at `path`, configured by `settings`.

    The class extends `RatioSlot`, which lists the class variables that it may set.

    Example:
        >>> CallableRatio(path="groupwise.objective.ratio.token:Token").piece
        Token(kind='token')
    """

    base: ClassVar[type[RatioSlot]] = RatioSlot
    stated: ClassVar[Mapping[str, tuple[str, ...]]] = {"scope": SCOPES}
    unread: ClassVar[Mapping[str, Any]] = {"scope": "decision"}

    def result_problem(self, result: Any, *arguments: Any) -> str:
        return per_decision_problem(result, arguments[0])

    def measure(self, *arguments: Any) -> Mapping[str, Statistic]:
        return self.called("measure", *arguments, problem_of=statistics_problem)
