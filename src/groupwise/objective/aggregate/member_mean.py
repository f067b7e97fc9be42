"""Every member weighs the same."""

from __future__ import annotations

from typing import Literal, final

from jaxtyping import Float
from torch import Tensor

from groupwise.objective.counts import Counts
from groupwise.objective.slot import AggregationSlot


@final
class MemberMean(AggregationSlot):
    """`w = 1 / (B n_b)`: the mean over members of the mean over their decisions.

    `B` counts every admitted member of the update, also one whose decisions are all masked.

    Example:
        >>> import torch
        >>> mask, everyone = torch.tensor([[True, True], [True, False]]), torch.ones(2, dtype=torch.bool)
        >>> counts = Counts(mask, everyone, everyone, torch.tensor([0, 0]), 1, lambda total: total)
        >>> [[round(value, 3) for value in row] for row in MemberMean()(counts).tolist()]
        [[0.25, 0.25], [0.5, 0.0]]

    Source: GRPO, arXiv 2402.03300, equation 3.
    """

    kind: Literal["member_mean"] = "member_mean"

    def __call__(self, counts: Counts) -> Float[Tensor, "B T"]:
        return counts.spread(1 / (counts.length.clamp(min=1) * counts.total(counts.admitted)))
