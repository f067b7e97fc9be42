"""One ratio a decision."""

from __future__ import annotations

from typing import ClassVar, Literal, final

from jaxtyping import Float
from torch import Tensor

from groupwise.objective.decisions import Decisions
from groupwise.objective.slot import RatioSlot


@final
class Token(RatioSlot):
    """`rho_t = r'_t`: importance sampling of each decision by itself (PPO, GRPO).

    Example:
        >>> import torch
        >>> log_ratio = torch.tensor([[0.5, 2.0, 2.0]]).log()
        >>> decisions = Decisions.of(torch.ones(1, 3, dtype=torch.bool), log_ratio, torch.zeros(1, 3), torch.ones(1, 3))
        >>> [round(value, 3) for value in Token()(log_ratio, decisions).exp()[0].tolist()]
        [0.5, 2.0, 2.0]
    """

    scope: ClassVar[str] = "decision"
    plain: ClassVar[bool] = True
    kind: Literal["token"] = "token"

    def __call__(self, log_ratio: Float[Tensor, "B T"], decisions: Decisions) -> Float[Tensor, "B T"]:
        """Returns `log rho [B, T]`."""
        return log_ratio
