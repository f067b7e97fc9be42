"""A user's class that weighs the terms of the loss, by import path."""

from __future__ import annotations

from typing import Any, ClassVar, final

from groupwise.config import PieceFromPath
from groupwise.objective.slot import AggregationSlot
from groupwise.objective.slot_result import per_decision_problem


@final
class CallableAggregation(PieceFromPath, AggregationSlot):
    """The piece whose class is at `path`, configured by `settings`.

    The class extends `AggregationSlot`, which lists the class variables that it may set.

    Example:
        >>> CallableAggregation(path="groupwise.objective.aggregate.token_mean:TokenMean").piece
        TokenMean(kind='token_mean')
    """

    base: ClassVar[type[AggregationSlot]] = AggregationSlot

    def result_problem(self, result: Any, *arguments: Any) -> str:
        return per_decision_problem(result, arguments[0].mask)
