"""Groups whose rewards differ."""

from __future__ import annotations

from typing import Literal, final

from jaxtyping import Bool
from torch import Tensor

from groupwise.objective.grouped import Grouped
from groupwise.objective.slot import AdmissionSlot


@final
class Informative(AdmissionSlot):
    """Groups that are not flat (at any place, for reward maps). Dropped groups leave the divisor of token means.

    Example:
        >>> Informative()(Grouped.of([1.0, 0.0], [1.0, 1.0])).tolist()
        [True, False]
    """

    kind: Literal["informative"] = "informative"

    def __call__(self, rewards: Grouped) -> Bool[Tensor, " P"]:
        """Returns `[num_groups]` bool."""
        return ~rewards.group_flat.all(dim=1)
