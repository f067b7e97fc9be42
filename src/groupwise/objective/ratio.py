"""The ratio of a decision: its log-ratio, smoothed over neighbouring decisions, at the level of a token or of a
member.
"""

import math
from abc import abstractmethod
from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import Annotated, Any, ClassVar, Literal, final

import torch
from jaxtyping import Bool, Float
from pydantic import Field
from torch import Tensor
from torch.autograd.function import once_differentiable

from groupwise.config import PieceFromPath
from groupwise.objective.decisions import LOG_LIMIT, Decisions, stop_gradient, token_gradient
from groupwise.objective.slot import SCOPES, RatioSlot, SmoothingSlot, per_decision_problem, statistics_problem
from groupwise.statistics import Mean, Statistic, Variance, VarianceReduction, as_float, logical_and

# Exponential moving average of the ratio along a member's decisions (source 000, innovation 2.1).


@final
class Ema(SmoothingSlot):
    """Over the valid decisions of one member: `r'_1 = r_1`, `r'_t = beta r_t + (1 - beta) r'_{t-1}`.

    On-policy every `r' = 1`, and the gradient of a decision's surrogate is spread back over the decisions before it
    (the transpose of the recursion), so early decisions of a member learn from what came after them. With `detach` a
    decision's gradient is its own: `r'_t -> sg(r'_t) exp(lp_t - sg(lp_t))`. Masked decisions are passed over: they
    neither smooth nor are smoothed.

    Example:
        `beta = 0.9`, ratios 2, 1, 1: `r' = 2, 0.9 + 0.1 * 2, 0.9 + 0.1 * 1.1`.

        >>> ratio = torch.tensor([[2.0, 1.0, 1.0]], dtype=torch.float64)
        >>> scan(ratio, beta=0.9, start=ratio[:, :1]).tolist()
        [[2.0, 1.1, 1.01]]

    Source: innovation 2.1 of source 000. Unlike there, nothing is kept across training steps.
    """

    scope: ClassVar[str] = "member"
    kind: Literal["ema"] = "ema"
    beta: float = Field(default=0.9, gt=0, le=1)
    """Weight of the current ratio; 1 means no smoothing."""
    init: Literal["first", "one"] = "first"
    """The average before the first decision: the first decision's own ratio, or 1."""
    detach: bool = False
    """Stop the gradient through the average."""

    def __call__(self, decisions: Decisions) -> Float[Tensor, "B T"]:
        """Returns `log r' [B, T]`, finite where the mask is false."""
        if decisions.mask.shape[1] == 0 or self.beta == 1.0:
            return decisions.log_ratio
        smoothed = _packed(self._smooth, decisions.log_ratio, decisions)
        if self.detach:
            smoothed = stop_gradient(smoothed) + decisions.log_prob - stop_gradient(decisions.log_prob)
        return smoothed

    def _smooth(self, log_ratio: Float[Tensor, "B T"]) -> Float[Tensor, "B T"]:
        smoothed: Tensor = _Smooth.apply(log_ratio, self.beta, self.init == "first")  # type: ignore[no-untyped-call]
        return smoothed

    def reach(self, terms: Bool[Tensor, "B T"], decisions: Decisions) -> Bool[Tensor, "B T"]:
        """Returns the decisions that the gradient of these terms reaches: their own, and without `detach` all before
        them in their member. It is computed by the backward pass's own recursion, applied to ones: decisions too far
        back for its floating-point numbers are not reached here either.
        """
        if self.detach or self.beta == 1.0 or terms.shape[1] == 0:
            return terms
        term_flags = as_float(logical_and(terms, decisions.taught), decisions.log_prob.dtype)
        reached = _packed(
            lambda values: scan(values, self.beta, torch.zeros_like(values[:, :1]), backwards=True),
            term_flags,
            decisions,
        )
        return logical_and(reached > 0, decisions.mask)

    def measure(self, decisions: Decisions, smoothed: Float[Tensor, "B T"]) -> Mapping[str, Statistic]:
        """Returns `ema/raw_weights_variance`, `ema/smoothed_weights_variance`, `ema/variance_reduction_ratio`."""
        return {"ema": VarianceReduction.of_logs(decisions.log_ratio, smoothed, decisions.mask)}


def _packed(
    smooth: Callable[[Tensor], Tensor], values: Float[Tensor, "B T"], decisions: Decisions
) -> Float[Tensor, "B T"]:
    """Applies `smooth` to the valid decisions only: their values are packed together for the call and put back
    afterwards.
    """
    if decisions.acted.packed:
        return smooth(values)
    members, width = values.shape
    place = torch.where(decisions.mask, decisions.position, width)
    return smooth(values.new_zeros(members, width + 1).scatter(1, place, values)[:, :width]).gather(
        1, decisions.position
    )


class _Smooth(torch.autograd.Function):
    """Smooths `log r` to `log r'`. The backward pass is the same recursion, run from the last decision to the first."""

    @staticmethod
    def forward(ctx: Any, log_ratio: Float[Tensor, "B T"], beta: float, starts_at_first: bool) -> Float[Tensor, "B T"]:
        ratio = log_ratio.exp()
        smoothed = scan(ratio, beta, ratio[:, :1] if starts_at_first else torch.ones_like(ratio[:, :1]))
        ctx.save_for_backward(ratio, smoothed)
        ctx.beta, ctx.starts_at_first = beta, starts_at_first
        return smoothed.log()

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *cotangents: Float[Tensor, "B T"]) -> tuple[Float[Tensor, "B T"], None, None]:
        ratio, smoothed = ctx.saved_tensors
        # A cotangent as large as a product of ratios, divided by a small ratio, may overflow although the gradient does
        # not: the cotangent is divided by its size first, and the gradient multiplied by it at the end.
        cotangent = cotangents[0]
        size = torch.maximum(cotangent.amax(1, keepdim=True), -cotangent.amin(1, keepdim=True)).clamp(
            min=torch.finfo(ratio.dtype).tiny
        )
        # Numbers close to zero are set to zero, since products with denormal numbers are slow.
        scaled = torch.nn.functional.hardshrink((cotangent / size).div_(smoothed), torch.finfo(ratio.dtype).tiny ** 0.5)
        gradient = scan(scaled, ctx.beta, torch.zeros_like(scaled[:, :1]), backwards=True)
        if ctx.starts_at_first:
            # The first ratio also stands for what precedes it, which weighs `1 - beta` in the first average.
            gradient[:, :1] /= ctx.beta
        return gradient.mul_(ratio).mul_(size), None, None


def scan(
    values: Float[Tensor, "B T"], beta: float, start: Float[Tensor, "B 1"], backwards: bool = False
) -> Float[Tensor, "B T"]:
    """Returns `y_t = beta x_t + (1 - beta) y_{t-1}` along the rows, as two levels of small matrix products: blocks of
    about `sqrt(T)`, then the ends of the blocks.

    There is no loop over decisions or over blocks.

    Args:
        values: `x [B, T]`.
        beta: weight of the current entry.
        start: `y_0 [B, 1]`.
        backwards: `y_t = beta x_t + (1 - beta) y_{t+1}` instead, starting after the last entry.
    """
    members, width = values.shape
    size = max(1, math.isqrt(width - 1) + 1)
    num_blocks = -(-width // size)
    short = num_blocks * size - width
    padded = torch.nn.functional.pad(values, (0, short)) if short else values.contiguous()
    keep = 1.0 - beta
    powers = _powers(keep, size, values.dtype, values.device)
    block_powers = _powers(keep**size, num_blocks, values.dtype, values.device)
    # Autocast is for the model: in bfloat16 these products would round every ratio to three digits.
    with torch.autocast(values.device.type, enabled=False):
        block_averages = (padded.view(-1, size) @ (beta * (powers if backwards else powers.T))).view(
            members, num_blocks, size
        )
        if backwards:
            carried, decay = torch.cat([block_averages[:, 1:, 0], start], dim=1) @ block_powers, keep * powers[-1]
        else:
            carried, decay = torch.cat([start, block_averages[:, :-1, -1]], dim=1) @ block_powers.T, keep * powers[:, 0]
    return block_averages.addcmul_(carried[:, :, None], decay).view(members, num_blocks * size)[:, :width]


@lru_cache(maxsize=64)
def _powers(base: float, size: int, dtype: torch.dtype, device: torch.device) -> Float[Tensor, "size size"]:
    """Returns the lower triangular matrix `[size, size]` of `base ** (row - column)`.

    Powers below 1e-19 in fp32 and 1e-154 in fp64 are 0: what they weigh is nothing, and products with them are denormal
    numbers, which processors are slow at.
    """
    step = torch.arange(size, device=device)
    distance = step[:, None] - step[None, :]
    power = torch.full((), base, dtype=torch.float64, device=device) ** distance.clamp(min=0)
    return torch.where((distance >= 0) & (power > torch.finfo(dtype).tiny ** 0.5), power, 0.0).to(dtype)


@final
class Identity(SmoothingSlot):
    """`r'_t = r_t`."""

    scope: ClassVar[str] = "decision"
    neutral: ClassVar[bool] = True
    kind: Literal["identity"] = "identity"

    def __call__(self, decisions: Decisions) -> Float[Tensor, "B T"]:
        """Returns `log r' [B, T]`."""
        return decisions.log_ratio


@final
class CallableSmoothing(PieceFromPath, SmoothingSlot):
    """The piece whose class is at `path`, configured by `settings`.

    The class extends `SmoothingSlot`, which lists the class variables that it may set.

    Example:
        >>> CallableSmoothing(path="groupwise.objective.ratio:Ema", settings={"beta": 0.5}).piece
        Ema(kind='ema', beta=0.5, init='first', detach=False)
    """

    base: ClassVar[type[SmoothingSlot]] = SmoothingSlot
    stated: ClassVar[Mapping[str, tuple[str, ...]]] = {"scope": SCOPES}
    unread: ClassVar[Mapping[str, Any]] = {"scope": "decision"}

    def result_problem(self, result: Any, *arguments: Any) -> str:
        return per_decision_problem(result, arguments[0].mask)

    def measure(self, *arguments: Any) -> Mapping[str, Statistic]:
        return self.called("measure", *arguments, problem_of=statistics_problem)


Smoothing = Annotated[
    Identity | Ema | CallableSmoothing,
    Field(discriminator="kind"),
]


class MemberRatio(RatioSlot):
    """`rho` of a member, broadcast over its valid decisions; 1 for a member without any.

    With `gradient = "sequence"` the gradient goes through the level, so all decisions of a member share it; with
    `"token"` the level is a constant and each decision keeps its own gradient.
    """

    scope: ClassVar[str] = "member"
    gradient: Literal["sequence", "token"] = "sequence"

    @property
    def shared_gradient(self) -> bool:  # pyright: ignore[reportIncompatibleVariableOverride]
        """True with `gradient = "sequence"`."""
        return self.gradient == "sequence"

    @property
    def constant_level(self) -> bool:  # pyright: ignore[reportIncompatibleVariableOverride]
        """True with `gradient = "token"`."""
        return self.gradient == "token"

    @abstractmethod
    def level(self, log_ratio: Float[Tensor, "B T"], decisions: Decisions) -> Float[Tensor, "B 1"]:
        """Returns `log rho [B, 1]`, with gradient.

        Args:
            log_ratio: smoothed log-ratios, in nats.
        """

    def __call__(self, log_ratio: Float[Tensor, "B T"], decisions: Decisions) -> Float[Tensor, "B T"]:
        level = self.level(log_ratio, decisions)
        return token_gradient(level, decisions) if self.gradient == "token" else level.expand_as(log_ratio)


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
