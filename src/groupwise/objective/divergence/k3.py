"""The estimator of GRPO."""

from __future__ import annotations

from typing import Literal, final

from jaxtyping import Float
from torch import Tensor

from groupwise.objective.decisions import LOG_LIMIT, Decisions
from groupwise.objective.known_gradient import known_gradient
from groupwise.objective.penalty import Penalty
from groupwise.statistics import as_float


@final
class K3(Penalty):
    """`D = exp(x) - x - 1` with `x = lp_ref - lp`, clamped in the exponent at 80.

    Never negative, unbiased in value for KL(pi || ref); on-policy its gradient is that of KL(ref || pi).

    Example:
        A decision the reference finds half as likely: `1/2 + ln 2 - 1`.

        >>> import torch
        >>> now = torch.full((1, 1), -1.0)
        >>> given = Decisions(torch.ones(1, 1, dtype=torch.bool), now, now, torch.ones(1, 1))
        >>> round(float(K3()(given, now - 0.6931, None)), 4)
        0.1931

    Source: GRPO, arXiv 2402.03300, equation 4.
    """

    kind: Literal["k3"] = "k3"

    def __call__(self, decisions: Decisions, reference_log_prob: Float[Tensor, "B T"], exact: Float[Tensor, "B T"] | None) -> Float[Tensor, "B T"]:
        gap = reference_log_prob - decisions.log_prob.detach()
        ratio = gap.clamp(max=LOG_LIMIT).exp()
        # The clamped exponent is constant beyond its bound.
        slope = 1 - ratio * as_float(gap <= LOG_LIMIT, ratio.dtype)
        return known_gradient(decisions.log_prob, ratio.sub_(gap).sub_(1), slope)
