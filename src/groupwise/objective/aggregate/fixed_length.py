"""A divisor that does not depend on what was sampled (Dr. GRPO)."""

from __future__ import annotations

from typing import Literal, final

from jaxtyping import Float
from torch import Tensor

from groupwise.config.numbers import Positive
from groupwise.objective.counts import Counts
from groupwise.objective.slot import AggregationSlot


@final
class FixedLength(AggregationSlot):
    """`w = 1 / (B L)` with `L = length` and `B` every member that was sampled, dropped groups included: the divisor is
    fixed.

    Neither a longer member nor a dropped group changes what another decision weighs.

    Example:
        >>> import torch
        >>> mask, everyone = torch.tensor([[True, True], [True, False]]), torch.ones(2, dtype=torch.bool)
        >>> counts = Counts(mask, everyone, everyone, torch.tensor([0, 0]), 1, lambda total: total)
        >>> [[round(value, 3) for value in row] for row in FixedLength(length=4)(counts).tolist()]
        [[0.125, 0.125], [0.125, 0.0]]

    Source: Dr. GRPO, arXiv 2503.20783, section 3.2 and its code.
    """

    kind: Literal["fixed_length"] = "fixed_length"
    length: Positive = 1024
    """`L`, in decisions: the generation limit, say."""

    def __call__(self, counts: Counts) -> Float[Tensor, "B T"]:
        return counts.spread(1 / (counts.total(counts.real) * self.length))
