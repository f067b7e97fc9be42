"""No trust region."""

from __future__ import annotations

from typing import ClassVar, Literal, final

import torch
from torch import Tensor

from groupwise.config import Config
from groupwise.objective.decisions import Decisions, Surrogate


@final
class Unbounded(Config):
    """`S = rho A`, or with `form = "log_prob"` the score-function form `S = A lp`, which ignores the ratio (REINFORCE, exactly on-policy).

    Both have the gradient `A` per log-prob at `rho = 1`. Off-policy, `rho A` is unbiased with a variance that nothing bounds; `A lp` is biased.

    Source: Williams 1992; RLOO, arXiv 2402.14740, equation 4, for the `log_prob` form.
    """

    scope: ClassVar[str] = "decision"
    kind: Literal["unbounded"] = "unbounded"
    form: Literal["ratio", "log_prob"] = "ratio"

    @property
    def score_function(self) -> bool:
        """True when each decision keeps its own gradient at every ratio level."""
        return self.form == "log_prob"

    def __call__(self, log_ratio: Tensor, decisions: Decisions) -> Surrogate:
        factor = log_ratio.exp() if self.form == "ratio" else decisions.log_prob
        return Surrogate(factor * decisions.advantage, torch.ones_like(decisions.mask))
