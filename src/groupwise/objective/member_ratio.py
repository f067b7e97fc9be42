"""A ratio of a whole member: one level for all its decisions."""

from __future__ import annotations

from abc import abstractmethod
from typing import ClassVar, Literal

from jaxtyping import Float
from torch import Tensor

from groupwise.objective.decisions import Decisions
from groupwise.objective.slot import RatioSlot
from groupwise.objective.token_gradient import token_gradient


class MemberRatio(RatioSlot):
    """`rho` of a member, broadcast over its valid decisions; 1 for a member without any.

    With `gradient = "sequence"` the gradient goes through the level, so all decisions of a member share it; with
    `"token"` the level is a constant and each decision keeps its own gradient.
    """

    scope: ClassVar[str] = "member"
    gradient: Literal["sequence", "token"] = "sequence"

    @property
    def shared_gradient(self) -> bool:  # pyright: ignore[reportIncompatibleVariableOverride]
        """True with `gradient = "sequence"`."""
        return self.gradient == "sequence"

    @property
    def constant_level(self) -> bool:  # pyright: ignore[reportIncompatibleVariableOverride]
        """True with `gradient = "token"`."""
        return self.gradient == "token"

    @abstractmethod
    def level(self, log_ratio: Float[Tensor, "B T"], decisions: Decisions) -> Float[Tensor, "B 1"]:
        """Returns `log rho [B, 1]`, with gradient.

        Args:
            log_ratio: smoothed log-ratios, in nats.
        """

    def __call__(self, log_ratio: Float[Tensor, "B T"], decisions: Decisions) -> Float[Tensor, "B T"]:
        level = self.level(log_ratio, decisions)
        return token_gradient(level, decisions) if self.gradient == "token" else level.expand_as(log_ratio)
