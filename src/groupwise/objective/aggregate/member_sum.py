"""The mean over members of the sum over their decisions."""

from __future__ import annotations

from typing import Literal, final

from jaxtyping import Float
from torch import Tensor

from groupwise.objective.counts import Counts
from groupwise.objective.slot import AggregationSlot


@final
class MemberSum(AggregationSlot):
    """`w = 1 / B`, with `B` the admitted members of the update, also those whose decisions are all masked.

    Example:
        >>> import torch
        >>> mask, everyone = torch.tensor([[True, True], [True, False]]), torch.ones(2, dtype=torch.bool)
        >>> counts = Counts(mask, everyone, everyone, torch.tensor([0, 0]), 1, lambda total: total)
        >>> [[round(value, 3) for value in row] for row in MemberSum()(counts).tolist()]
        [[0.5, 0.5], [0.5, 0.0]]
    """

    kind: Literal["member_sum"] = "member_sum"

    def __call__(self, counts: Counts) -> Float[Tensor, "B T"]:
        return counts.spread(1 / counts.total(counts.admitted))
