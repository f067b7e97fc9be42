"""Half the squared difference of log-probs."""

from __future__ import annotations

from typing import Literal, final

from torch import Tensor

from groupwise.objective.decisions import Decisions
from groupwise.objective.penalty import Penalty


@final
class K2(Penalty):
    """`D = (lp - lp_ref)^2 / 2`.

    On-policy its gradient is that of KL(pi || ref); its value is biased.

    Source: Schulman 2020, "Approximating KL divergence".
    """

    kind: Literal["k2"] = "k2"

    def __call__(self, decisions: Decisions, reference_log_prob: Tensor, exact: Tensor | None) -> Tensor:
        return 0.5 * (decisions.log_prob - reference_log_prob).square()
