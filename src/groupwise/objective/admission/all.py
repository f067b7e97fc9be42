"""Every group trains."""

from __future__ import annotations

from typing import Literal, final

import torch
from jaxtyping import Bool
from torch import Tensor

from groupwise.objective.grouped import Grouped
from groupwise.objective.slot import AdmissionSlot


@final
class Everything(AdmissionSlot):
    """All groups: flat ones have advantage 0 and still count in every divisor.

    Example:
        >>> Everything()(Grouped.of([1.0, 0.0], [1.0, 1.0])).tolist()
        [True, True]
    """

    kind: Literal["all"] = "all"

    def __call__(self, rewards: Grouped) -> Bool[Tensor, " P"]:
        """Returns `[num_groups]` bool."""
        return torch.ones(rewards.num_groups, dtype=torch.bool, device=rewards.value.device)
