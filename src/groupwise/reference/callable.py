"""A user's reference, by import path."""

from __future__ import annotations

from typing import ClassVar, final

from groupwise.config import PieceFromPath
from groupwise.reference.rule import ReferenceRule


@final
class CallableReference(PieceFromPath, ReferenceRule):
    """The reference whose class is at `path`, configured by `settings`. The class extends `ReferenceRule`.

    Example:
        >>> rule = CallableReference(path="groupwise.reference.ema:EmaReference", settings={"decay": 0.75})
        >>> rule.follow(1, None, None)
        0.25
    """

    base: ClassVar[type[ReferenceRule]] = ReferenceRule
