"""Every decision weighs the same."""

from __future__ import annotations

from typing import Literal, final

from jaxtyping import Float
from torch import Tensor

from groupwise.objective.counts import Counts
from groupwise.objective.slot import AggregationSlot


@final
class TokenMean(AggregationSlot):
    """`w = 1 / N` with `N` the valid decisions of admitted members in the whole update; the weights sum to 1.

    Example:
        >>> import torch
        >>> mask, everyone = torch.tensor([[True, True], [True, False]]), torch.ones(2, dtype=torch.bool)
        >>> counts = Counts(mask, everyone, everyone, torch.tensor([0, 0]), 1, lambda total: total)
        >>> [[round(value, 3) for value in row] for row in TokenMean()(counts).tolist()]
        [[0.333, 0.333], [0.333, 0.0]]

    Source: DAPO's token-level loss, arXiv 2503.14476, equation 12, taken over the whole update as verl and TRL do.
    """

    kind: Literal["token_mean"] = "token_mean"

    def __call__(self, counts: Counts) -> Float[Tensor, "B T"]:
        return counts.spread(1 / counts.total(counts.mask))
