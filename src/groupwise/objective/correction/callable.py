"""A user's class that weighs decisions for what the sampler did, by import path."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar, final

from groupwise.config import PieceFromPath
from groupwise.objective.slot import CorrectionSlot
from groupwise.objective.slot_result import per_decision_problem


@final
class CallableCorrection(PieceFromPath, CorrectionSlot):
    """The piece whose class is at `path`, configured by `settings`.

    The class extends `CorrectionSlot`, which lists the class variables that it may set.

    Example:
        >>> CallableCorrection(
        ...     path="groupwise.objective.correction.truncate:Truncate", settings={"maximum": 3.0}
        ... ).piece.maximum
        3.0
    """

    base: ClassVar[type[CorrectionSlot]] = CorrectionSlot
    unread: ClassVar[Mapping[str, Any]] = {"reads": frozenset()}

    def result_problem(self, result: Any, *arguments: Any) -> str:
        return per_decision_problem(result, arguments[1])
