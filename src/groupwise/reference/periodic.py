"""A reference that takes a step towards the policy now and then."""

from __future__ import annotations

from typing import Literal, final

from pydantic import Field

from groupwise.config.numbers import Positive
from groupwise.reference.rule import ReferenceRule


@final
class PeriodicReference(ReferenceRule):
    """Every `sync_steps` steps that made an update: `ref <- alpha theta + (1 - alpha) ref`.

    Args:
        sync_steps: steps with an update between two mixings.
        alpha: the policy's share; 1 copies the policy, 0 leaves the reference frozen.

    Example:
        >>> PeriodicReference().alpha
        0.6

    Source: Gorbatovski et al. 2024, arXiv 2404.09656 (TR-DPO); orientation as in TRL's `ref_model_mixup_alpha`.
    """

    kind: Literal["periodic"] = "periodic"
    sync_steps: Positive = 64
    alpha: float = Field(default=0.6, ge=0, le=1)

    def follow(self, step: int, score: float | None, reference_score: float | None) -> float | None:
        """Returns `alpha` at every `sync_steps`-th step."""
        return None if step % self.sync_steps else self.alpha
