"""A class of your own that bounds an update, by import path."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar, final

from groupwise.config import FromPath
from groupwise.objective.slot import SCOPES, TrustSlot


@final
class CallableTrust(FromPath, TrustSlot):
    """What the class at `path` does, configured by `settings`.

    The class extends `TrustSlot`, which lists what it may state.

    Example:
        >>> CallableTrust(path="groupwise.objective.trust.gaussian:Gaussian", settings={"sigma": 0.3}).piece
        Gaussian(kind='gaussian', sigma=0.3)
    """

    base: ClassVar[type[TrustSlot]] = TrustSlot
    stated: ClassVar[Mapping[str, tuple[str, ...]]] = {"scope": SCOPES}
    unread: ClassVar[Mapping[str, Any]] = {"scope": "decision", "score_function": True}
