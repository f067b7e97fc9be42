"""The absolute difference of log-probs."""

from __future__ import annotations

from typing import Literal, final

from torch import Tensor

from groupwise.objective.decisions import Decisions
from groupwise.objective.penalty import Penalty


@final
class Absolute(Penalty):
    """`D = |lp - lp_ref|`.

    On-policy its gradient is that of twice the total variation between policy and reference.
    """

    kind: Literal["abs"] = "abs"

    def __call__(self, decisions: Decisions, reference_log_prob: Tensor, exact: Tensor | None) -> Tensor:
        return (decisions.log_prob - reference_log_prob).abs()
