"""Ratio level: the smoothed ratio as one number a decision, or one a member broadcast over its decisions. Works on
log-ratios.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, ClassVar, Literal, final

import torch
from jaxtyping import Bool, Float
from pydantic import Field
from torch import Tensor

from groupwise.config import PieceFromPath
from groupwise.objective.clipping import MemberRatio
from groupwise.objective.decisions import LOG_LIMIT, Decisions
from groupwise.objective.slot import SCOPES, RatioSlot, per_decision_problem, statistics_problem
from groupwise.statistics import Mean, Statistic, Variance


@final
class Arithmetic(MemberRatio):
    """`rho = (1/n) sum_t r'_t` over a member's valid decisions, broadcast; 1 for a member without any.

    With `gradient = "sequence"` decision `t` gets the share `r'_t / (n rho)` of the member's gradient; with `"token"`
    each decision keeps its own gradient and that weighting by `r'_t` is dropped (a stated deviation, which lets a
    credit act).

    Example:
        >>> import torch
        >>> log_ratio = torch.tensor([[0.5, 2.0, 2.0]]).log()
        >>> decisions = Decisions.of(torch.ones(1, 3, dtype=torch.bool), log_ratio, torch.zeros(1, 3), torch.ones(1, 3))
        >>> [round(value, 3) for value in Arithmetic()(log_ratio, decisions).exp()[0].tolist()]
        [1.5, 1.5, 1.5]

    Source: innovation 2.3 of source 000.
    """

    averages: ClassVar[bool] = True
    kind: Literal["arithmetic"] = "arithmetic"

    def level(self, log_ratio: Float[Tensor, "B T"], decisions: Decisions) -> Float[Tensor, "B 1"]:
        mean = decisions.mean(log_ratio.exp())
        return torch.where(decisions.occupied, mean, torch.ones_like(mean)).log()

    def measure(self, log_level: Float[Tensor, "B T"], decisions: Decisions) -> Mapping[str, Statistic]:
        """Returns `amic/sequence_weights_variance` over members, `amic/avg_sequence_length` in decisions."""
        # One number a member, at every valid decision.
        weight = (
            decisions.masked(log_level.detach(), fill=torch.finfo(log_level.dtype).min)
            .amax(1, keepdim=True)
            .double()
            .exp()
        )
        return {
            "amic/sequence_weights_variance": Variance.about_one(weight, decisions.occupied),
            "amic/avg_sequence_length": Mean.of(decisions.count, decisions.occupied),
        }


@final
class Geometric(MemberRatio):
    """`rho = exp((1/n) sum_t log r'_t)` over a member's valid decisions, broadcast; 1 for a member without any.

    With `gradient = "sequence"` the gradient goes through the mean, so all decisions share it and a credit weight would
    cancel; with `"token"` each decision keeps its own (GSPO-token).

    Example:
        The cube root of 2.

        >>> import torch
        >>> log_ratio = torch.tensor([[0.5, 2.0, 2.0]]).log()
        >>> decisions = Decisions.of(torch.ones(1, 3, dtype=torch.bool), log_ratio, torch.zeros(1, 3), torch.ones(1, 3))
        >>> [round(value, 3) for value in Geometric()(log_ratio, decisions).exp()[0].tolist()]
        [1.26, 1.26, 1.26]

    Source: arXiv 2507.18071, equations 7 and 14.
    """

    averages: ClassVar[bool] = True
    kind: Literal["geometric"] = "geometric"

    def level(self, log_ratio: Float[Tensor, "B T"], decisions: Decisions) -> Float[Tensor, "B 1"]:
        return decisions.mean(log_ratio)


@final
class Product(MemberRatio):
    """`rho = prod_t r'_t` over a member's valid decisions, clamped to `exp(+-80)` (no gradient beyond), broadcast; 1
    for a member without any.

    With `gradient = "sequence"` every decision's surrogate carries the gradient of the whole product: use it with a
    mean over decisions.

    Example:
        >>> import torch
        >>> log_ratio = torch.tensor([[0.5, 2.0, 2.0]]).log()
        >>> decisions = Decisions.of(torch.ones(1, 3, dtype=torch.bool), log_ratio, torch.zeros(1, 3), torch.ones(1, 3))
        >>> [round(value, 3) for value in Product()(log_ratio, decisions).exp()[0].tolist()]
        [2.0, 2.0, 2.0]
    """

    kind: Literal["product"] = "product"

    def level(self, log_ratio: Float[Tensor, "B T"], decisions: Decisions) -> Float[Tensor, "B 1"]:
        return decisions.masked(log_ratio).sum(1, keepdim=True).clamp(-LOG_LIMIT, LOG_LIMIT)

    def held(self, log_level: Float[Tensor, "B T"]) -> Bool[Tensor, "B T"]:
        """Returns where the product is clamped."""
        return log_level.abs() >= LOG_LIMIT


@final
class Token(RatioSlot):
    """`rho_t = r'_t`: importance sampling of each decision by itself (PPO, GRPO).

    Example:
        >>> import torch
        >>> log_ratio = torch.tensor([[0.5, 2.0, 2.0]]).log()
        >>> decisions = Decisions.of(torch.ones(1, 3, dtype=torch.bool), log_ratio, torch.zeros(1, 3), torch.ones(1, 3))
        >>> [round(value, 3) for value in Token()(log_ratio, decisions).exp()[0].tolist()]
        [0.5, 2.0, 2.0]
    """

    scope: ClassVar[str] = "decision"
    plain: ClassVar[bool] = True
    kind: Literal["token"] = "token"

    def __call__(self, log_ratio: Float[Tensor, "B T"], decisions: Decisions) -> Float[Tensor, "B T"]:
        """Returns `log rho [B, T]`."""
        return log_ratio


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


@final
class CallableRatio(PieceFromPath, RatioSlot):
    """The piece whose class is at `path`, configured by `settings`.

    The class extends `RatioSlot`, which lists the class variables that it may set.

    Example:
        >>> CallableRatio(path="groupwise.objective.ratio:Token").piece
        Token(kind='token')
    """

    base: ClassVar[type[RatioSlot]] = RatioSlot
    stated: ClassVar[Mapping[str, tuple[str, ...]]] = {"scope": SCOPES}
    unread: ClassVar[Mapping[str, Any]] = {"scope": "decision"}

    def result_problem(self, result: Any, *arguments: Any) -> str:
        return per_decision_problem(result, arguments[0])

    def measure(self, *arguments: Any) -> Mapping[str, Statistic]:
        return self.called("measure", *arguments, problem_of=statistics_problem)


Ratio = Annotated[
    Token | Geometric | Arithmetic | Product | Transition | CallableRatio,
    Field(discriminator="kind"),
]
