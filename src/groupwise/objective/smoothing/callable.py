"""A user's class that smooths log-ratios, by import path."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar, final

from groupwise.config import PieceFromPath
from groupwise.objective.slot import SCOPES, SmoothingSlot
from groupwise.objective.slot_result import per_decision_problem, statistics_problem
from groupwise.statistics import Statistic


@final
class CallableSmoothing(PieceFromPath, SmoothingSlot):
    """The piece whose class is at `path`, configured by `settings`.

    The class extends `SmoothingSlot`, which lists the class variables that it may set.

    Example:
        >>> CallableSmoothing(path="groupwise.objective.smoothing.ema:Ema", settings={"beta": 0.5}).piece
        Ema(kind='ema', beta=0.5, init='first', detach=False)
    """

    base: ClassVar[type[SmoothingSlot]] = SmoothingSlot
    stated: ClassVar[Mapping[str, tuple[str, ...]]] = {"scope": SCOPES}
    unread: ClassVar[Mapping[str, Any]] = {"scope": "decision"}

    def result_problem(self, result: Any, *arguments: Any) -> str:
        return per_decision_problem(result, arguments[0].mask)

    def measure(self, *arguments: Any) -> Mapping[str, Statistic]:
        return self.called("measure", *arguments, problem_of=statistics_problem)
