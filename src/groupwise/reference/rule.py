"""The base of all kinds of reference: whether a reference exists, and when it takes a step towards the policy."""

from __future__ import annotations

from typing import ClassVar, Literal

from groupwise.config import Config


class ReferenceRule(Config):
    """The base of the references: a second set of weights, and when it is mixed with the policy's.

    Example:
        >>> class Halfway(ReferenceRule):
        ...     def follow(self, step, score, reference_score):
        ...         return 0.5
        >>> Halfway().follow(1, None, None), Halfway().mixes
        (0.5, True)
    """

    present: ClassVar[bool] = True
    """False where nothing is compared with an earlier policy."""
    mixes: ClassVar[bool] = True
    """False where the reference's weights never change."""
    adapter_off: ClassVar[bool] = False
    """True where, with an adapter, the reference is the model with its adapter switched off."""

    def follow(
        self, step: int, score: float | None, reference_score: float | None
    ) -> float | Literal["refused"] | None:
        """Returns the policy's share `alpha` in `ref <- alpha theta + (1 - alpha) ref`, at the end of a step.

        Args:
            step: steps that made an update since the reference began, from 1.
            score: the newest score of the policy's evaluations, turned so that more is better.
            reference_score: the score of the policy that the reference was last mixed with.

        Returns:
            a number from 0 to 1; `None` where nothing is due; `"refused"` where a mixing was due and the policy is not
            good enough.
        """
        return None
