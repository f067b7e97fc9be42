"""The estimator of GRPO."""

from __future__ import annotations

import math
from typing import Literal, final

import torch
from jaxtyping import Float
from torch import Tensor

from groupwise.objective.decisions import LOG_LIMIT, Decisions
from groupwise.objective.known_gradient import known_gradient
from groupwise.objective.penalty import Penalty


@final
class K3(Penalty):
    """`D = exp(x) - x - 1` with `x = lp_ref - lp`; beyond `x = 80` it goes on as a straight line, with the slope that
    it has there.

    Computed by `expm1`, so that a drift of 1e-4 is not lost to rounding in fp32. Never negative, unbiased in value for
    KL(pi || ref); on-policy its gradient is that of KL(ref || pi).

    Example:
        A decision the reference finds half as likely: `1/2 + ln 2 - 1`.

        >>> import torch
        >>> log_prob = torch.full((1, 1), -1.0)
        >>> decisions = Decisions.of(torch.ones(1, 1, dtype=torch.bool), log_prob, log_prob, torch.ones(1, 1))
        >>> round(float(K3()(decisions, log_prob - 0.6931, None)), 4)
        0.1931

    Source: GRPO, arXiv 2402.03300, equation 4.
    """

    kind: Literal["k3"] = "k3"

    def __call__(
        self, decisions: Decisions, reference_log_prob: Float[Tensor, "B T"], exact: Float[Tensor, "B T"] | None
    ) -> Float[Tensor, "B T"]:
        gap = reference_log_prob - decisions.log_prob.detach()
        clamped = gap.clamp(max=LOG_LIMIT)
        grown = clamped.expm1()
        beyond = gap.sub(clamped).clamp_(max=torch.finfo(gap.dtype).max / math.exp(LOG_LIMIT) / 2)
        # Where x is tiny, rounding may leave expm1(x) below x.
        value = torch.addcmul(grown - clamped, beyond, grown).clamp_(min=0)
        return known_gradient(decisions.log_prob, value, -grown)
