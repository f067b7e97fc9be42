"""A user's reference, by import path."""

from __future__ import annotations

from typing import ClassVar, Literal, final

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

    def follow(
        self, step: int, score: float | None, reference_score: float | None
    ) -> float | Literal["refused"] | None:
        """Returns the policy's share, or why there is none.

        Raises:
            ValueError: it is no share.
        """
        share = self.called("follow", step, score, reference_score)
        if share is None or share == "refused":
            return share
        if isinstance(share, bool) or not isinstance(share, int | float) or not 0 <= share <= 1:
            raise ValueError(
                f"reference {self.path}: follow() returned {share!r} at step {step}; return the policy's share, a"
                " number from 0 to 1, or None where nothing is mixed"
            )
        return float(share)
