"""One ratio a decision."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar, Literal, final

from torch import Tensor

from groupwise.config import Config
from groupwise.objective.decisions import Decisions
from groupwise.statistics import Statistic


@final
class Token(Config):
    """`rho_t = r'_t`: importance sampling of each decision by itself (PPO, GRPO)."""

    scope: ClassVar[str] = "decision"
    kind: Literal["token"] = "token"

    def __call__(self, log_ratio: Tensor, decisions: Decisions) -> Tensor:
        """`log rho [B, T]`."""
        return log_ratio

    def measure(self, log_level: Tensor, decisions: Decisions) -> Mapping[str, Statistic]:
        return {}
