"""The normalised ratio of a Gaussian transition (GRPO-Guard): no bias towards ratios below one, and one scale for all
steps.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar, Literal, final

from jaxtyping import Bool, Float
from torch import Tensor

from groupwise.config import Config
from groupwise.objective.decisions import Decisions
from groupwise.statistics import Statistic


@final
class Transition(Config):
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
    kind: Literal["transition"] = "transition"

    def __call__(self, log_ratio: Float[Tensor, "B T"], decisions: Decisions) -> Float[Tensor, "B T"]:
        """`log rho [B, T]`."""
        assert decisions.mean_shift is not None
        return decisions.mean_shift

    def reach(self, terms: Bool[Tensor, "B T"], decisions: Decisions) -> Bool[Tensor, "B T"]:
        """The decisions that the gradient of these terms reaches: their own."""
        return terms

    def measure(self, log_level: Float[Tensor, "B T"], decisions: Decisions) -> Mapping[str, Statistic]:
        return {}
