"""The estimator of GRPO."""

from __future__ import annotations

from typing import Literal, final

from torch import Tensor

from groupwise.objective.decisions import LOG_LIMIT, Decisions
from groupwise.objective.penalty import Penalty


@final
class K3(Penalty):
    """`D = exp(x) - x - 1` with `x = lp_ref - lp`, clamped in the exponent at 80.

    Never negative, unbiased in value for KL(pi || ref); on-policy its gradient is that of KL(ref || pi).

    Source: GRPO, arXiv 2402.03300, equation 4.
    """

    kind: Literal["k3"] = "k3"

    def __call__(self, decisions: Decisions, reference_log_prob: Tensor, exact: Tensor | None) -> Tensor:
        gap = reference_log_prob - decisions.log_prob
        return gap.clamp(max=LOG_LIMIT).exp() - gap - 1
