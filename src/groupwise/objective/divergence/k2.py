"""Half the squared difference of log-probs."""

from __future__ import annotations

from typing import Literal, final

from jaxtyping import Float
from torch import Tensor

from groupwise.objective.decisions import Decisions
from groupwise.objective.penalty import Penalty


@final
class K2(Penalty):
    """`D = (lp - lp_ref)^2 / 2`.

    On-policy its gradient is that of KL(pi || ref); its value is biased.

    Example:
        A decision the reference finds half as likely: `ln(2)^2 / 2`.

        >>> import torch
        >>> log_prob = torch.full((1, 1), -1.0)
        >>> decisions = Decisions.of(torch.ones(1, 1, dtype=torch.bool), log_prob, log_prob, torch.ones(1, 1))
        >>> round(float(K2()(decisions, log_prob - 0.6931, None)), 4)
        0.2402

    Source: Schulman 2020, "Approximating KL divergence".
    """

    kind: Literal["k2"] = "k2"

    def __call__(
        self, decisions: Decisions, reference_log_prob: Float[Tensor, "B T"], exact: Float[Tensor, "B T"] | None
    ) -> Float[Tensor, "B T"]:
        return 0.5 * (decisions.log_prob - reference_log_prob).square()
