"""A class of your own that compares rewards, by import path."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar, final

from groupwise.config import FromPath
from groupwise.objective.slot import AdvantageSlot


@final
class CallableAdvantage(FromPath, AdvantageSlot):
    """What the class at `path` does, configured by `settings`.

    The class extends `AdvantageSlot`, which lists what it may state.

    Example:
        >>> CallableAdvantage(path="groupwise.objective.advantage.centred:Centred").piece
        Centred(kind='centred', clip=None)
    """

    base: ClassVar[type[AdvantageSlot]] = AdvantageSlot
    unread: ClassVar[Mapping[str, Any]] = {"group_baseline": False}
