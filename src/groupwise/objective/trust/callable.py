"""A user's class that bounds an update, by import path."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar, final

from groupwise.config import PieceFromPath
from groupwise.objective.slot import SCOPES, TrustSlot
from groupwise.objective.slot_result import surrogate_problem


@final
class CallableTrust(PieceFromPath, TrustSlot):
    """The piece whose class is at `path`, configured by `settings`.

    The class extends `TrustSlot`, which lists the class variables that it may set.

    Example:
        >>> CallableTrust(path="groupwise.objective.trust.gaussian:Gaussian", settings={"sigma": 0.3}).piece
        Gaussian(kind='gaussian', sigma=0.3)
    """

    base: ClassVar[type[TrustSlot]] = TrustSlot
    stated: ClassVar[Mapping[str, tuple[str, ...]]] = {"scope": SCOPES}
    unread: ClassVar[Mapping[str, Any]] = {"scope": "decision", "score_function": True}

    def result_problem(self, result: Any, *arguments: Any) -> str:
        return surrogate_problem(result, arguments[0])
