"""No trust region."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, ClassVar, Literal, final

import torch
from jaxtyping import Float
from torch import Tensor

from groupwise.objective.decisions import Decisions, Surrogate
from groupwise.objective.slot import TrustSlot

if TYPE_CHECKING:
    from groupwise.objective.objective import Objective


@final
class Unbounded(TrustSlot):
    """`S = rho A`, or with `form = "log_prob"` the score-function form `S = A lp`, which ignores the ratio (REINFORCE,
    exactly on-policy).

    Both have the gradient `A` per log-prob at `rho = 1`. Off-policy, `rho A` is unbiased with a variance that nothing
    bounds; `A lp` is biased.

    Example:
        >>> import torch
        >>> log_ratio, advantage = torch.tensor([[1.0, 0.5, 4.0]]).log(), torch.tensor([[1.0, -1.0, 1.0]])
        >>> decisions = Decisions.of(
        ...     torch.ones(1, 3, dtype=torch.bool), log_ratio - 1, torch.full((1, 3), -1.0), advantage
        ... )
        >>> surrogate = Unbounded()(log_ratio, decisions)
        >>> [round(value, 3) for value in surrogate.value[0].tolist()], surrogate.alive[0].tolist()
        ([1.0, -0.5, 4.0], [True, True, True])

    Source: Williams 1992; RLOO, arXiv 2402.14740, equation 4, for the `log_prob` form.
    """

    scope: ClassVar[str] = "decision"
    kind: Literal["unbounded"] = "unbounded"
    form: Literal["ratio", "log_prob"] = "ratio"

    @property
    def score_function(self) -> bool:  # pyright: ignore[reportIncompatibleVariableOverride]
        """True when each decision keeps its own gradient at every ratio level."""
        return self.form == "log_prob"

    def refuses(self, objective: Objective) -> Iterator[str]:
        """Yields what is ineffective beside a region that ignores the ratio."""
        if self.form == "ratio":
            return
        smoothing, ratio = objective.smoothing, objective.ratio
        if not smoothing.neutral:
            yield (
                f"smoothing.kind = {smoothing.kind!r} is ineffective with trust.form = 'log_prob', which ignores the"
                " ratio; write trust.form = 'ratio', or smoothing.kind = 'identity'"
            )
        if ratio.averages:
            yield (
                f"ratio.kind = {ratio.kind!r} is ineffective with trust.form = 'log_prob', which ignores the ratio;"
                " write trust.form = 'ratio', or ratio.kind = 'token'"
            )

    def __call__(self, log_ratio: Float[Tensor, "B T"], decisions: Decisions) -> Surrogate:
        factor = log_ratio.exp() if self.form == "ratio" else decisions.log_prob
        return Surrogate(factor * decisions.advantage, torch.ones_like(decisions.mask))
