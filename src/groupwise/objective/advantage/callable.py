"""A user's class that compares rewards, by import path."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar, final

from groupwise.config import PieceFromPath
from groupwise.objective.slot import AdvantageSlot
from groupwise.objective.slot_result import advantage_problem


@final
class CallableAdvantage(PieceFromPath, AdvantageSlot):
    """The piece whose class is at `path`, configured by `settings`.

    The class extends `AdvantageSlot`, which lists the class variables that it may set.

    Example:
        >>> CallableAdvantage(path="groupwise.objective.advantage.centred:Centred").piece
        Centred(kind='centred', clip=None)
    """

    base: ClassVar[type[AdvantageSlot]] = AdvantageSlot
    unread: ClassVar[Mapping[str, Any]] = {"group_baseline": False}

    def result_problem(self, result: Any, *arguments: Any) -> str:
        return advantage_problem(result, arguments[0].value)
