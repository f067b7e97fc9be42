"""A user's class that spreads an advantage over decisions, by import path."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar, final

from groupwise.config import PieceFromPath
from groupwise.objective.slot import CreditSlot
from groupwise.objective.slot_result import per_decision_problem, statistics_problem
from groupwise.statistics import Statistic


@final
class CallableCredit(PieceFromPath, CreditSlot):
    """The piece whose class is at `path`, configured by `settings`.

    The class extends `CreditSlot`, which lists the class variables that it may set.

    Example:
        >>> CallableCredit(path="groupwise.objective.credit.inverse_step:InverseStep").piece
        InverseStep(raw=False)
    """

    base: ClassVar[type[CreditSlot]] = CreditSlot

    def result_problem(self, result: Any, *arguments: Any) -> str:
        return per_decision_problem(result, arguments[0].mask)

    def measure(self, *arguments: Any) -> Mapping[str, Statistic]:
        return self.called("measure", *arguments, problem_of=statistics_problem)
