"""Gradient from the decisions of the highest entropy alone (the forking tokens of the 80/20 rule)."""

from __future__ import annotations

from typing import ClassVar, final

import torch
from jaxtyping import Float
from pydantic import Field
from torch import Tensor

from groupwise.objective.covariance import largest
from groupwise.objective.decisions import Decisions
from groupwise.objective.slot import CreditSlot
from groupwise.objective.stop_gradient import stop_gradient
from groupwise.statistics import Statistic, as_float, row_count


@final
class TopEntropy(CreditSlot):
    """`c_t = 1` at the decisions whose entropy reaches the `1 - share` quantile of the update, and 0 elsewhere.

    The quantile interpolates linearly between the `N` valid decisions of the whole update on all processes, so that `N
    - ceil((1 - share) (N - 1))` decisions train; those that tie for the last place train too.

    Example:
        >>> import torch
        >>> from dataclasses import replace
        >>> zeros = torch.zeros(1, 5)
        >>> decisions = Decisions.of(torch.ones(1, 5, dtype=torch.bool), zeros, zeros, zeros)
        >>> TopEntropy(share=0.5)(replace(decisions, entropy=torch.tensor([[0.1, 2.0, 0.3, 1.0, 0.2]]))).tolist()
        [[0.0, 1.0, 1.0, 1.0, 0.0]]

    Source: arXiv 2506.01939; the share of its runs is 0.2.
    """

    kind: ClassVar[str] = "top_entropy"
    scope: ClassVar[str] = "batch"
    masks: ClassVar[bool] = True
    reads: ClassVar[frozenset[str]] = frozenset({"entropy"})
    share: float = Field(default=0.2, gt=0, le=1)
    """Of all valid decisions of an update, how many train."""

    def __call__(self, decisions: Decisions) -> Float[Tensor, "B T"]:
        assert decisions.entropy is not None
        entropy = stop_gradient(decisions.entropy)
        count = decisions.reduce(row_count(decisions.mask).sum().double())
        number = count - ((1 - self.share) * (count - 1)).ceil()
        chosen = largest(entropy, decisions.mask, number, decisions.reduce, take_ties=True)
        return as_float(chosen, decisions.log_prob.dtype)

    def measure(self, weight: Float[Tensor, "B T"], decisions: Decisions) -> dict[str, Statistic]:
        """Returns the share of valid decisions that train: `top_entropy/trained_mean`."""
        return {"top_entropy/trained_mean": decisions.share(lambda: torch.gt(weight, 0))}
