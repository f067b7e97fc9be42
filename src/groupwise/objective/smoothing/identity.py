"""No smoothing."""

from __future__ import annotations

from typing import ClassVar, Literal, final

from jaxtyping import Float
from torch import Tensor

from groupwise.objective.decisions import Decisions
from groupwise.objective.slot import SmoothingSlot


@final
class Identity(SmoothingSlot):
    """`r'_t = r_t`."""

    scope: ClassVar[str] = "decision"
    neutral: ClassVar[bool] = True
    kind: Literal["identity"] = "identity"

    def __call__(self, decisions: Decisions) -> Float[Tensor, "B T"]:
        """Returns `log r' [B, T]`."""
        return decisions.log_ratio
