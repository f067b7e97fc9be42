"""The absolute difference of log-probs."""

from __future__ import annotations

from typing import Literal, final

from jaxtyping import Float
from torch import Tensor

from groupwise.objective.decisions import Decisions
from groupwise.objective.penalty import Penalty


@final
class Absolute(Penalty):
    """`D = |lp - lp_ref|`.

    On-policy its gradient is that of twice the total variation between policy and reference.

    Example:
        A decision the reference finds half as likely.

        >>> import torch
        >>> log_prob = torch.full((1, 1), -1.0)
        >>> decisions = Decisions.of(torch.ones(1, 1, dtype=torch.bool), log_prob, log_prob, torch.ones(1, 1))
        >>> round(float(Absolute()(decisions, log_prob - 0.6931, None)), 4)
        0.6931
    """

    kind: Literal["abs"] = "abs"

    def __call__(
        self, decisions: Decisions, reference_log_prob: Float[Tensor, "B T"], exact: Float[Tensor, "B T"] | None
    ) -> Float[Tensor, "B T"]:
        return (decisions.log_prob - reference_log_prob).abs()
