"""The input of every slot of the objective: the decisions of some members, with masked places already set to harmless
values; and the clipping that slots share.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, final

import torch
from jaxtyping import Bool, Float, Int, Shaped
from torch import Tensor
from torch.autograd.function import once_differentiable

from groupwise.objective.batch import Acted
from groupwise.records import tensors_of
from groupwise.statistics import Mean, Reduce, Statistic, as_float, logical_and, row_count, sum_over_one_process, total

PerDecision = Float[Tensor, "B T"]
"""One number for every decision of every member."""


@final
@dataclass(frozen=True)
class Counts:
    """The counts of an update that aggregation reads.

    Args:
        mask: `[B, T]` bool, valid decisions of admitted members.
        admitted: `[B]` bool, members of admitted groups, also those without a valid decision.
        real: `[B]` bool, every member that counts as sampled, those of dropped groups included.
        prompt: `[B]` integers from 0, the member's prompt inside this process's part of the update.
        num_prompts: the number of prompts in this process's part of the update.
        reduce: sum over processes.
    """

    mask: Bool[Tensor, ...]
    admitted: Bool[Tensor, " B"]
    real: Bool[Tensor, " B"]
    prompt: Int[Tensor, " B"]
    num_prompts: int
    reduce: Reduce

    @cached_property
    def length(self) -> Float[Tensor, ...]:
        """`[B, 1]` fp64, valid decisions of each member."""
        return row_count(self.mask).double()

    def total(self, where: Bool[Tensor, ...]) -> Float[Tensor, ""]:
        """Returns the number of true places over all processes, fp64, at least 1 so that it can divide."""
        return self.reduce(self.length.sum() if where is self.mask else where.sum(dtype=torch.float64)).clamp(min=1)

    def spread(self, weight: Float[Tensor, ...]) -> Float[Tensor, ...]:
        """Returns `[B, T]`: a weight at each valid decision, 0 elsewhere. The weight is one number for all members, or
        one a member `[B, 1]`.
        """
        return torch.where(self.mask, weight, 0.0)


# The only function of the objective that stops a gradient, with a record / replay mode for finite differences.
#
# A finite difference of a loss with stopped gradients is right only where the stopped values stay at the base point:
# `recording` keeps them, and `replaying` returns them again.

_recorded: list[Tensor] | None = None
_replayed: Iterator[Tensor] | None = None


def stop_gradient(value: Tensor) -> Tensor:
    """Returns `value` as a constant: its gradient is 0.

    Example:
        >>> import torch
        >>> x = torch.tensor(3.0, requires_grad=True)
        >>> (stop_gradient(x) * x).backward()
        >>> float(x.grad)
        3.0
    """
    if _replayed is not None:
        return next(_replayed)
    stopped = value.detach()
    if _recorded is not None:
        _recorded.append(stopped)
    return stopped


@contextmanager
def recording() -> Iterator[list[Tensor]]:
    """Keeps every stopped value of the code inside, in order."""
    global _recorded
    outer, _recorded = _recorded, []
    try:
        yield _recorded
    finally:
        _recorded = outer


@contextmanager
def replaying(values: list[Tensor]) -> Iterator[None]:
    """Hands the kept values out again, in order, whatever the code inside computes.

    Args:
        values: the values that `recording` kept.

    Example:
        >>> import torch
        >>> with recording() as stopped:
        ...     _ = stop_gradient(torch.tensor(1.0))
        >>> with replaying(stopped):
        ...     float(stop_gradient(torch.tensor(5.0)))
        1.0
    """
    global _replayed
    outer, _replayed = _replayed, iter(values)
    try:
        yield
    finally:
        _replayed = outer


LOG_LIMIT = 80.0
"""Products of ratios are clamped to `exp(+-80)`, which fp32 still holds."""

_HELD = 0.45
"""A decision's ratio is held to this power of the largest number: its square, and the ratio of two, are finite (40 nats
in fp32, 319 in fp64).
"""


class _LogRatio(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, log_prob: Tensor, old_log_prob: Tensor) -> Tensor:
        limit = _HELD * math.log(torch.finfo(log_prob.dtype).max)
        return torch.sub(log_prob, old_log_prob).clamp_(-limit, limit)

    @staticmethod
    def backward(ctx: Any, *cotangents: Tensor) -> tuple[Tensor, None]:
        return cotangents[0], None


@final
@dataclass(frozen=True)
class Decisions:
    """Members of one update as the slots see them. All tensors are `[B, T]`, 0 where the mask is false.

    Args:
        acted: the decisions as recorded, in the dtype of the loss: `acted.old_log_prob` (nats, under the policy that
            acted), `acted.behaviour_log_prob`, `acted.step_size`, ... where the objective reads them.
        log_prob: nats, under the policy being trained, with gradient.
        advantage: one number a decision.
        score_norm, mean_shift, old_divergence, positive_error, negative_error, entropy: where the objective requires
            them.
        draw: the key of this step's random draws.
        member_advantage: `[B, 1]`, the advantage of each member, where it has one for all its decisions.
        reduce: sum over processes.

    Attributes:
        mask: true where a decision counts: the one field of `acted` that every slot reads.
        good, bad: bool, `A > 0` and `A < 0`: `[B, T]`, or `[B, 1]` where members have one advantage. They mean nothing
            where the mask is false.
    """

    acted: Acted
    log_prob: Float[Tensor, "B T"]
    advantage: Float[Tensor, "B T"]
    score_norm: Float[Tensor, "B T"] | None = None
    mean_shift: Float[Tensor, "B T"] | None = None
    old_divergence: Float[Tensor, "B T"] | None = None
    positive_error: Float[Tensor, "B T"] | None = None
    negative_error: Float[Tensor, "B T"] | None = None
    entropy: Float[Tensor, "B T"] | None = None
    draw: int = 0
    member_advantage: Float[Tensor, "B 1"] | None = None
    reduce: Reduce = sum_over_one_process
    mask: Bool[Tensor, "B T"] = field(init=False)
    good: Bool[Tensor, "B K"] = field(init=False)
    bad: Bool[Tensor, "B K"] = field(init=False)

    def __post_init__(self) -> None:
        advantage = self.advantage if self.member_advantage is None else self.member_advantage
        # The record is frozen once it is built.
        vars(self).update(mask=self.acted.mask, good=advantage > 0, bad=advantage < 0)

    @staticmethod
    def of(
        mask: Bool[Tensor, "B T"],
        log_prob: Float[Tensor, "B T"],
        old_log_prob: Float[Tensor, "B T"],
        advantage: Float[Tensor, "B T"],
        **acted: Any,
    ) -> Decisions:
        """Returns decisions made of plain tensors, for an example or a test of a slot.

        Args:
            mask: true where a decision counts.
            log_prob: nats, under the policy being trained.
            old_log_prob: nats, under the policy that acted.
            advantage: one number a decision.
            acted: further fields of `Acted` by name, `step_size` for example.

        Example:
            >>> log_prob = torch.tensor([[-1.0, -2.0]])
            >>> Decisions.of(torch.ones(1, 2, dtype=torch.bool), log_prob, log_prob - 0.5, log_prob).log_ratio.tolist()
            [[0.5, 0.5]]
        """
        return Decisions(Acted(mask, old_log_prob, **acted), log_prob, advantage)

    @cached_property
    def log_ratio(self) -> Float[Tensor, "B T"]:
        """`d = lp - lp_old`, clamped to 40 nats in fp32 and 319 in fp64. The gradient is not clamped, so that a bad
        decision beyond this range is still corrected.
        """
        log_ratio: Tensor = _LogRatio.apply(self.log_prob, self.acted.old_log_prob)  # type: ignore[no-untyped-call]
        return log_ratio

    @cached_property
    def count(self) -> Float[Tensor, "B 1"]:
        """`n [B, 1]`, valid decisions of each member, at least 1 so that it can divide."""
        return self._length.clamp(min=1).to(self.log_prob.dtype)

    @cached_property
    def position(self) -> Int[Tensor, "R T"]:
        """Integers, `[B, T]`, or `[1, T]` where all members are packed: the place of a valid decision among the valid
        ones of its member, from 0.
        """
        if self.acted.packed:
            return torch.arange(self.mask.shape[1], device=self.mask.device)[None]
        return (self.mask.cumsum(1, dtype=torch.int32) - 1).clamp(min=0).long()

    @cached_property
    def taught(self) -> Bool[Tensor, "B T"]:
        """Bool, the valid decisions whose own advantage is not 0."""
        return logical_and(self.mask, self.advantage != 0)

    def detached(self) -> Decisions:
        """Returns the decisions without gradient, for metrics: a metric that is read later must not keep the graph
        alive.
        """
        return replace(self, **{name: value.detach() for name, value in tensors_of(self).items()})

    def share(self, hits: Bool[Tensor, "B T"] | Callable[[], Tensor]) -> Mean:
        """Returns the statistic of the share of valid decisions at which `hits [B, T]` is true. A function is called
        when the statistic is read.
        """
        return Mean.share(hits, self.mask)

    def average(self, values: Float[Tensor, "B T"] | Callable[[], Tensor]) -> Mean:
        """Returns the statistic of the mean of `values [B, T]` over valid decisions. A function is called when the
        statistic is read.
        """
        return Mean.of(values, self.mask)

    def mean(self, values: Float[Tensor, "B T"]) -> Float[Tensor, "B 1"]:
        """Returns `[B, 1]`, the mean over the valid decisions of each member; 0 for a member without any."""
        return self.masked(values).sum(1, keepdim=True) / self.count

    def masked(self, values: Float[Tensor, "R K"], fill: float = 0.0) -> Float[Tensor, "B T"]:
        """Returns `values` with `fill` where the mask is false."""
        return self.acted.masked(values, fill)

    @cached_property
    def occupied(self) -> Bool[Tensor, "B 1"]:
        """`[B, 1]` bool: members with at least one valid decision."""
        return self._length > 0

    @cached_property
    def _length(self) -> Int[Tensor, "B 1"]:
        return row_count(self.mask)


@final
@dataclass(frozen=True)
class Deviation:
    """Predictions minus their target, on `N` noised copies `a x0 + b e` of samples with `D` elements each.

    The target is the one of supervised training: `e - x0` for a flow, `e`, `a e - b x0` or `x0` otherwise.

    Args:
        live: `[N, D]`, of the policy being trained, with gradient.
        old: `[N, D]`, of the policy that sampled, without gradient.
        time: `[N]` in (0, 1], the noise level of a flow, the share of the training steps otherwise.
        clean_scale: `[N]`, the change of the predicted sample `x0` for a change of the prediction by one: `b` for a
            flow and `a e - b x0`, `b / a` for `e`, 1 for `x0`.

    Example:
        >>> import torch
        >>> zeros = torch.zeros(1, 2)
        >>> Deviation(zeros + 1.0, zeros, torch.tensor([0.5]), torch.tensor([0.5])).clean().tolist()
        [[0.5, 0.5]]
    """

    live: Float[Tensor, "N D"]
    old: Float[Tensor, "N D"]
    time: Float[Tensor, " N"]
    clean_scale: Float[Tensor, " N"]

    def clean(self, share: float = 1.0) -> Float[Tensor, "N D"]:
        """Returns the deviation of the predicted sample `x0`, up to its sign, of the prediction `share` of the way from
        the old policy's to the live one's. A share below 0 is on the other side of the old policy.
        """
        return self.clean_scale[:, None] * (share * self.live + (1 - share) * self.old)


@final
@dataclass(frozen=True)
class Surrogate:
    """The result of a trust region.

    Args:
        value: `S [B, T]`, larger is better.
        alive: `[B, T]` bool, true where the surrogate still carries gradient.
        statistics: the metrics of the region.
        direct: `[B, T]` bool, true where the gradient goes to the decision's own log-prob and past the ratio; `None`
            for a region for which that holds everywhere (`score_function`) or nowhere.
    """

    value: Float[Tensor, "B T"]
    alive: Bool[Tensor, "B T"]
    statistics: Mapping[str, Statistic] = field(default_factory=dict)
    direct: Bool[Tensor, "B T"] | None = None


# The gradient of a member's ratio: each decision has its own gradient (the token form), or all decisions share one.


def token_gradient(log_level: Float[Tensor, "B K"], decisions: Decisions) -> Float[Tensor, "B T"]:
    """Returns `log rho_t = sg(log rho) + lp_t - sg(lp_t)` (GSPO-token, arXiv 2507.18071, equation 14), `[B, T]` from
    `[B, 1]`.

    Args:
        log_level: `[B, 1]` nats, the member's.
        decisions: of the same members.

    Example:
        >>> import torch
        >>> log_prob = torch.tensor([[-1.0, -2.0]], requires_grad=True)
        >>> level = token_gradient(
        ...     torch.tensor([[0.5]]),
        ...     Decisions.of(torch.ones(1, 2, dtype=torch.bool), log_prob, log_prob.detach(), torch.ones(1, 2)),
        ... )
        >>> level[0, 0].backward()
        >>> level.tolist(), log_prob.grad.tolist()
        ([[0.5, 0.5]], [[1.0, 0.0]])
    """
    return stop_gradient(log_level) + decisions.log_prob - stop_gradient(decisions.log_prob)


def whole_member(terms: Bool[Tensor, "B T"], decisions: Decisions) -> Bool[Tensor, "B T"]:
    """Returns all valid decisions of the members that have one of the terms with an advantage: decisions that share a
    ratio share its gradient.

    Args:
        terms: `[B, T]` bool, the terms whose surrogate carries gradient.
        decisions: of the same members.

    Example:
        >>> import torch
        >>> log_prob, terms = torch.zeros(2, 2), torch.tensor([[True, False], [False, False]])
        >>> whole_member(
        ...     terms, Decisions.of(torch.ones(2, 2, dtype=torch.bool), log_prob, log_prob, torch.ones(2, 2))
        ... ).tolist()
        [[True, True], [False, False]]
    """
    return logical_and(decisions.mask, logical_and(terms, decisions.taught).any(1, keepdim=True))


# A value whose gradient is known in closed form: one product in the backward pass instead of a graph of comparisons
# and selections.


class _KnownGradient(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, source: Float[Tensor, "*S"], value: Float[Tensor, "*S"], slope: Float[Tensor, "*S"]
    ) -> Float[Tensor, "*S"]:
        ctx.save_for_backward(slope)
        return value.view_as(value)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *cotangents: Tensor) -> tuple[Tensor, None, None]:
        (slope,) = ctx.saved_tensors
        return cotangents[0] * slope, None, None


def known_gradient(
    source: Float[Tensor, "*S"], value: Float[Tensor, "*S"], slope: Float[Tensor, "*S"]
) -> Float[Tensor, "*S"]:
    """Returns `value`, with `d value / d source = slope` entry by entry.

    Both are computed without a graph. Once differentiable.

    Args:
        source: `[B, T]`, the tensor with respect to which the gradient is taken.
        value: `[B, T]`, detached.
        slope: `[B, T]`, detached.

    Example:
        >>> x = torch.tensor([2.0, -3.0], requires_grad=True)
        >>> square = known_gradient(x, x.detach() ** 2, 2 * x.detach())
        >>> square.sum().backward()
        >>> square.tolist(), x.grad.tolist()
        ([4.0, 9.0], [4.0, -6.0])
    """
    result: Tensor = _KnownGradient.apply(source, value, slope)  # type: ignore[no-untyped-call]
    return result


def clipped(
    log_ratio: Float[Tensor, "B T"], decisions: Decisions, low: float, high: float
) -> tuple[Float[Tensor, "B T"], Bool[Tensor, "B T"], Bool[Tensor, "B T"]]:
    """Returns `min(rho A, clip(rho, 1 - low, 1 + high) A)` with the places where it is clipped.

    The edge belongs to the region: at exactly `1 + high`, or `1 - low`, the gradient is that of the unclipped term, as
    in the derivatives of `torch.min` and `torch.clamp`.

    Args:
        log_ratio: `[B, T]` nats, with gradient.
        decisions: the decisions, whose advantages are read.
        low, high: the distances from 1 by which the ratio may fall and rise.

    Returns:
        `S [B, T]`; where `A < 0` and `rho < 1 - low`; where `A > 0` and `rho > 1 + high`. Those two carry no gradient.

    Example:
        >>> log_ratio = torch.tensor([[1.5, 1.5]]).log()
        >>> decisions = Decisions.of(
        ...     torch.ones(1, 2, dtype=torch.bool), log_ratio, torch.zeros(1, 2), torch.tensor([[1.0, -1.0]])
        ... )
        >>> value, too_low, too_high = clipped(log_ratio, decisions, 0.2, 0.25)
        >>> value.tolist(), too_high.tolist()
        ([[1.25, -1.5]], [[True, False]])
    """
    ratio, advantage = log_ratio.detach().exp(), decisions.advantage
    too_low = logical_and(decisions.bad, ratio < 1 - low)
    too_high = logical_and(decisions.good, ratio > 1 + high)
    alive = ~(too_low | too_high)
    plain = ratio * advantage
    clamped = ratio.clamp(1 - low, 1 + high).mul_(advantage)
    return (
        known_gradient(log_ratio, torch.minimum(plain, clamped), plain * as_float(alive, plain.dtype)),
        too_low,
        too_high,
    )


def clip_shares(
    too_low: Bool[Tensor, "B T"], too_high: Bool[Tensor, "B T"], decisions: Decisions
) -> Mapping[str, Statistic]:
    """Returns the shares of the valid decisions that are clipped, under TRL's names.

    Args:
        too_low, too_high: `[B, T]` bool, the clipped decisions as `clipped` returns them.

    Example:
        >>> zeros, too_low = torch.zeros(1, 4), torch.tensor([[True, False, False, False]])
        >>> metrics = clip_shares(
        ...     too_low, ~too_low & False, Decisions.of(torch.ones(1, 4, dtype=torch.bool), zeros, zeros, zeros)
        ... )
        >>> metrics["clip_ratio/low_mean"].finish("low")
        {'low': 0.25}
    """
    return {
        "clip_ratio/low_mean": Mean.share(too_low, decisions.mask),
        "clip_ratio/high_mean": Mean.share(too_high, decisions.mask),
        "clip_ratio/region_mean": Mean.share(lambda: too_low | too_high, decisions.mask),
    }


# The optional bound on an advantage, after scaling.


def bounded(advantage: Float[Tensor, ...], clip: float | None) -> Float[Tensor, ...]:
    """Returns `advantage` clamped to `[-clip, clip]`; as it is without a bound.

    Args:
        advantage: `[B, K]`.
        clip: the largest absolute value.

    Example:
        >>> import torch
        >>> bounded(torch.tensor([[-4.0], [1.0]]), 3.0).tolist()
        [[-3.0], [1.0]]
    """
    return advantage if clip is None else advantage.clamp(-clip, clip)


# The covariance of log-prob and advantage over a whole update, decision by decision, and how to pick decisions by it
# on any number of processes.

_DIGIT_BITS = 8
_DIGITS = 1 << _DIGIT_BITS


def covariance(decisions: Decisions) -> Float[Tensor, ...]:
    """Returns `(lp - mean(lp)) (A - mean(A))`, `[B, T]` detached, the means over every valid decision of the update on
    all processes.

    Args:
        decisions: the decisions of this process.

    Example:
        >>> log_prob, advantage = torch.tensor([[-1.0, -3.0]]), torch.tensor([[1.0, -1.0]])
        >>> covariance(Decisions.of(torch.ones(1, 2, dtype=torch.bool), log_prob, log_prob, advantage)).tolist()
        [[1.0, 1.0]]
    """
    log_prob = stop_gradient(decisions.log_prob)
    sums = torch.stack([row_count(decisions.mask).sum().double(), total(log_prob), total(decisions.advantage)])
    count, mean_log_prob, mean_advantage = decisions.reduce(sums)
    count = count.clamp(min=1)
    return decisions.masked(
        (log_prob - (mean_log_prob / count).to(log_prob.dtype))
        * (decisions.advantage - (mean_advantage / count).to(log_prob.dtype))
    )


def share_of(share: float, decisions: Decisions) -> Float[Tensor, ""]:
    """Returns `max(1, floor(share N))`, `N` the valid decisions of the update on all processes.

    Args:
        share: in (0, 1].
        decisions: the decisions of this process.

    Example:
        >>> zeros = torch.zeros(1, 5)
        >>> float(share_of(0.5, Decisions.of(torch.ones(1, 5, dtype=torch.bool), zeros, zeros, zeros)))
        2.0
    """
    return (share * decisions.reduce(row_count(decisions.mask).sum().double())).floor().clamp(min=1)


def largest(
    values: Float[Tensor, ...],
    where: Bool[Tensor, ...],
    number: Shaped[Tensor, ""],
    reduce: Reduce,
    places: Int[Tensor, " N"] | None = None,
    lots: Callable[[Int[Tensor, " M"]], Float[Tensor, " M"]] | None = None,
    take_ties: bool = False,
) -> Bool[Tensor, ...]:
    """Returns the places of the `number` largest values over all processes together. Where more values tie for the last
    places than fit, some of them are drawn, all of them are taken,
    or all of them are left out.

    The numbers are read as integers of the same order, eight bits at a time from the top. Each pass counts the
    candidates of each digit, and processes exchange these counts only; the next pass continues with the candidates of
    the one digit of which some are taken and some are not. The result is exact in every dtype.

    Args:
        values: `[B, T]` fp32 or fp64, finite where `where` is true; or `[N]`, the values at the places of `where` in
            order.
        where: `[B, T]` bool, the candidates.
        number: scalar, the number of places over all processes.
        reduce: sum over processes.
        places: `where.flatten().nonzero()[:, 0]`, where the caller has it already.
        lots: returns the random numbers of flat places (`lots_of`); of values that tie, those with the smallest numbers
            are taken. Without `lots` they are left out.
        take_ties: takes every value that ties for the last places, more than `number` then.

    Returns:
        `[B, T]` bool.

    Example:
        >>> where = torch.tensor([[True, True, False, True]])
        >>> largest(torch.tensor([[1.0, 3.0, 9.0, 2.0]]), where, torch.tensor(2), lambda total: total).tolist()
        [[False, True, False, True]]
    """
    places = where.flatten().nonzero()[:, 0] if places is None else places
    numbers = values.flatten()[places] if values.dim() == where.dim() else values
    bits = torch.int32 if numbers.dtype == torch.float32 else torch.int64
    width = torch.iinfo(bits).bits
    # Adding zero turns -0 into 0; a negative number's bits count downwards.
    bit_pattern = (numbers + 0.0).view(bits)
    key = bit_pattern ^ ((bit_pattern >> (width - 1)) & torch.iinfo(bits).max)
    chosen, remaining = torch.zeros_like(where).flatten(), number.double()
    for shift in range(width - _DIGIT_BITS, -1, -_DIGIT_BITS):
        digit = (key >> shift) & (_DIGITS - 1)
        if shift == width - _DIGIT_BITS:
            digit = digit ^ (_DIGITS >> 1)  # the sign: negative numbers sort below
        counts = reduce(torch.bincount(digit, minlength=_DIGITS).double())
        from_above = torch.cat([counts.flip(0).cumsum(0).flip(0), counts.new_zeros(1)])
        cut = _DIGITS + 1 - (from_above <= remaining).sum()  # the smallest digit that fits with everything above it
        chosen[places[digit >= cut]] = True
        remaining = remaining - from_above[cut]
        split = digit == cut - 1
        key, places = key[split], places[split]
    if take_ties and bool(remaining > 0):
        chosen[places] = True
        return chosen.view_as(where)
    # `remaining` is the same number on every process, so that all of them draw, or none.
    if lots is not None and bool(remaining > 0):
        tied = torch.zeros_like(chosen)
        tied[places] = True
        return chosen.view_as(where) | largest(-lots(places), tied.view_as(where), remaining, reduce, places)
    return chosen.view_as(where)


def lots_of(decisions: Decisions) -> Callable[[Int[Tensor, " M"]], Float[Tensor, " M"]]:
    """Returns the random numbers of an update by flat place: keyed by the member's id, the decision's place and the
    step, so that they do not change with sharding.

    Args:
        decisions: the decisions of this process, with their members' ids.

    Example:
        >>> zeros = torch.zeros(2, 3)
        >>> decisions = Decisions.of(
        ...     torch.ones(2, 3, dtype=torch.bool), zeros, zeros, zeros, member=torch.tensor([7, 3])
        ... )
        >>> bool(
        ...     (
        ...         lots_of(decisions)(torch.tensor([4])) == keyed_uniform(torch.tensor([3]), torch.tensor([1]), key=0)
        ...     ).all()
        ... )
        True
    """
    member, width = decisions.acted.member, decisions.mask.shape[1]
    assert member is not None
    return lambda places: keyed_uniform(member[places // width], places % width, decisions.draw)


def keyed_uniform(member: Tensor, decision: Tensor, key: int) -> Tensor:
    """Returns random numbers in [0, 1), fp64, that depend on (member id, decision, key) alone, so that a draw is the
    same however the members are dealt out.

    Args:
        member: integer ids.
        decision: integer places, broadcast with `member`.
        key: the key of the draw, for example the step.

    Example:
        >>> members = torch.tensor([[7], [3]])
        >>> first = keyed_uniform(members, torch.arange(2), key=0)
        >>> bool((keyed_uniform(members.flip(0), torch.arange(2), key=0) == first.flip(0)).all())
        True
    """
    # A Python integer does not wrap at 64 bits by itself, and torch accepts no larger one.
    by_key = ((key * 1442695040888963407 + (1 << 63)) & ((1 << 64) - 1)) - (1 << 63)
    mixed = member * -7046029254386353131 + decision * -4658895280553007687 + by_key
    for shift, factor in ((30, -4658895280553007687), (27, -7723592293110705685)):
        mixed = (mixed ^ ((mixed >> shift) & ((1 << (64 - shift)) - 1))) * factor
    mixed = mixed ^ ((mixed >> 31) & ((1 << 33) - 1))
    return ((mixed >> 11) & ((1 << 53) - 1)).double() / float(1 << 53)
