"""The normalised ratio of a Gaussian transition (GRPO-Guard): no bias towards ratios below one, and one scale for all
steps.
"""

from __future__ import annotations

from typing import ClassVar, Literal, final

from jaxtyping import Float
from torch import Tensor

from groupwise.objective.decisions import Decisions
from groupwise.objective.slot import RatioSlot


@final
class Transition(RatioSlot):
    """`log rho = mean(eps (mu - mu_old))`, the mean over dimensions: how far the transition's mean moved along the
    noise that was drawn.

    A transition `x = mu_old + s eps`, `s = sigma sqrt(dt)`, has `d = mean(eps (mu - mu_old)) / s - |mu - mu_old|^2 / (2
    s^2)`: below zero on average, by an amount that varies with the step, so that a clip around one holds bad samples
    and lets good ones pass. This log-ratio is `s (d + |mu - mu_old|^2 / (2 s^2))`: zero on average and of one scale for
    all steps. The domain gives it as `Scored.mean_shift`, with gradient, from the stored old means; log-probs are not
    read, so smoothing does not act on it.

    On-policy the ratio is 1 and its gradient is that of `mean_shift`, which is `s` times that of the log-prob.

    Source: RatioNorm, arXiv 2510.22319, equation 8.
    """

    scope: ClassVar[str] = "decision"
    reads: ClassVar[frozenset[str]] = frozenset({"mean_shift"})
    ignores_smoothing: ClassVar[bool] = True
    kind: Literal["transition"] = "transition"

    def __call__(self, log_ratio: Float[Tensor, "B T"], decisions: Decisions) -> Float[Tensor, "B T"]:
        """Returns `log rho [B, T]`."""
        assert decisions.mean_shift is not None
        return decisions.mean_shift
