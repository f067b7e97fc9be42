"""The estimator of GRPO, weighted by the ratio."""

from __future__ import annotations

from typing import Literal, final

import torch
from jaxtyping import Float
from torch import Tensor

from groupwise.objective.decisions import LOG_LIMIT, Decisions
from groupwise.objective.known_gradient import known_gradient
from groupwise.objective.penalty import Penalty

_NEAR = 1.0
"""Below it `exp(x) - 1 - x` is computed as it stands; above, `1 - (x + 1) exp(-x)` cancels nothing, and `r exp(x)` is
one exponential that cannot overflow.
"""


@final
class K3Unbiased(Penalty):
    """`D = r (exp(x) - x - 1)` with `x = lp_ref - lp` and `r = exp(lp - lp_old)`, its value clamped in the exponents at
    80.

    Its gradient by `lp` is `-r x`, and is taken so: differentiated term by term it is a difference of two numbers near
    `r exp(x)`.

    Never negative. Unbiased in value and gradient for KL(pi || ref) also off-policy.

    Example:
        On-policy its value is that of k3: `1/2 + ln 2 - 1` for a decision the reference finds half as likely.

        >>> import torch
        >>> log_prob = torch.full((1, 1), -1.0)
        >>> decisions = Decisions.of(torch.ones(1, 1, dtype=torch.bool), log_prob, log_prob, torch.ones(1, 1))
        >>> round(float(K3Unbiased()(decisions, log_prob - 0.6931, None)), 4)
        0.1931

    Source: DeepSeek-V3.2, arXiv 2512.02556; TRL's default since 1.0.
    """

    kind: Literal["k3_unbiased"] = "k3_unbiased"

    def __call__(
        self, decisions: Decisions, reference_log_prob: Float[Tensor, "B T"], exact: Float[Tensor, "B T"] | None
    ) -> Float[Tensor, "B T"]:
        gap = reference_log_prob - decisions.log_prob.detach()
        still = decisions.detached()
        # Held from above only: a ratio that underflows is 0, and one that is held from below would multiply `exp(x)`.
        log_ratio = torch.minimum(still.log_ratio.clamp(max=LOG_LIMIT), still.log_prob - still.acted.old_log_prob)
        ratio = log_ratio.exp()
        near = ratio * (gap.clamp(max=_NEAR).expm1() - gap)
        far = (log_ratio + gap).clamp_(max=LOG_LIMIT).exp_() * (1 - (gap + 1) * torch.exp(-gap.clamp(min=_NEAR)))
        value = torch.where(gap <= _NEAR, near, far).clamp_(min=0)
        return known_gradient(decisions.log_prob, value, -ratio * gap)
