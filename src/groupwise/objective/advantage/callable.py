"""A user's class that compares rewards, by import path."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar, final

from groupwise.config import PieceFromPath
from groupwise.objective.slot import AdvantageSlot


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
