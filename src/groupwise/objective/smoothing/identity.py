"""No smoothing."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar, Literal, final

from jaxtyping import Bool, Float
from torch import Tensor

from groupwise.config import Config
from groupwise.objective.decisions import Decisions
from groupwise.statistics import Statistic


@final
class Identity(Config):
    """`r'_t = r_t`."""

    scope: ClassVar[str] = "decision"
    kind: Literal["identity"] = "identity"

    def __call__(self, decisions: Decisions) -> Float[Tensor, "B T"]:
        """`log r' [B, T]`."""
        return decisions.log_ratio

    def reach(self, terms: Bool[Tensor, "B T"], decisions: Decisions) -> Bool[Tensor, "B T"]:
        """The decisions that the gradient of these terms reaches: their own."""
        return terms

    def measure(self, decisions: Decisions, smoothed: Float[Tensor, "B T"]) -> Mapping[str, Statistic]:
        return {}
