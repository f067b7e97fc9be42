"""A reference that is mixed with the policy only where the score of the policy's evaluations has not fallen."""

from __future__ import annotations

from typing import Literal, final

from pydantic import Field

from groupwise.config.numbers import Positive
from groupwise.reference.rule import ReferenceRule


@final
class QualityGateReference(ReferenceRule):
    """As `periodic`, but a mixing is refused when `score(theta) < score(ref) - margin`.

    `score(ref)` is the score of the policy with which the reference was last mixed (at first, of the policy at the
    start), so no evaluation is spent on the reference itself. Nothing is refused while a score is missing.

    Args:
        sync_steps: steps between two mixings.
        alpha: the policy's share.
        margin: the amount by which the score may fall, in the metric's own unit; under `train.metric_goal = "min"`, the
            amount by which it may rise.

    Example:
        >>> gate = QualityGateReference(margin=0.02)
        >>> gate.refuses(0.90, 0.87), gate.refuses(0.90, 0.89), gate.refuses(None, 0.1)
        (True, False, False)
    """

    kind: Literal["quality_gate"] = "quality_gate"
    sync_steps: Positive = 64
    alpha: float = Field(default=0.6, ge=0, le=1)
    margin: float = Field(default=0.02, ge=0)

    def refuses(self, reference_score: float | None, policy_score: float | None) -> bool:
        """Returns whether the policy's score is too far below the reference's for a mixing.

        Args:
            reference_score: the score of the policy with which the reference was last mixed.
            policy_score: the policy's newest score.
        """
        return reference_score is not None and policy_score is not None and policy_score < reference_score - self.margin

    def follow(
        self, step: int, score: float | None, reference_score: float | None
    ) -> float | Literal["refused"] | None:
        """Returns `alpha` at every `sync_steps`-th step, unless the policy has fallen too far."""
        if step % self.sync_steps:
            return None
        return "refused" if self.refuses(reference_score, score) else self.alpha
