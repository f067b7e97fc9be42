"""A reference that follows the policy all the time, slowly."""

from __future__ import annotations

from typing import Literal, final

from pydantic import Field

from groupwise.reference.rule import ReferenceRule


@final
class EmaReference(ReferenceRule):
    """After every step that made an update: `ref <- decay ref + (1 - decay) theta`.

    Args:
        decay: the reference's share; 1 leaves it frozen, 0 copies the policy at every step.

    Example:
        >>> EmaReference().decay
        0.99
    """

    kind: Literal["ema"] = "ema"
    decay: float = Field(default=0.99, ge=0, le=1)

    def follow(self, step: int, score: float | None, reference_score: float | None) -> float:
        """Returns `1 - decay`, at every step."""
        return 1 - self.decay
