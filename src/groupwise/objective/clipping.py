"""The pessimistic clip that several trust regions are made of."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Mapping
from typing import ClassVar, Literal

import torch
from jaxtyping import Bool, Float, Int, Shaped
from torch import Tensor

from groupwise.objective.decisions import Decisions, known_gradient, stop_gradient, token_gradient
from groupwise.objective.slot import RatioSlot
from groupwise.statistics import Reduce, Statistic, as_float, logical_and, row_count, total


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
        "clip_ratio/low_mean": decisions.share(too_low),
        "clip_ratio/high_mean": decisions.share(too_high),
        "clip_ratio/region_mean": decisions.share(lambda: too_low | too_high),
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
        decisions: of this process.

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
        decisions: of this process.

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
    candidates of each digit, and processes exchange these counts only; the next pass goes on with the candidates of the
    one digit of which some are taken and some are not. The result is exact in every dtype.

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
            digit = digit ^ (_DIGITS >> 1)  # the sign: negative numbers below
        counts = reduce(torch.bincount(digit, minlength=_DIGITS).double())
        from_above = torch.cat([counts.flip(0).cumsum(0).flip(0), counts.new_zeros(1)])
        cut = _DIGITS + 1 - (from_above <= remaining).sum()  # the smallest digit that fits with all above it
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
        decisions: of this process, with their members' ids.

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
    # A Python integer does not wrap at 64 bits by itself, and torch takes no larger one.
    by_key = ((key * 1442695040888963407 + (1 << 63)) & ((1 << 64) - 1)) - (1 << 63)
    mixed = member * -7046029254386353131 + decision * -4658895280553007687 + by_key
    for shift, factor in ((30, -4658895280553007687), (27, -7723592293110705685)):
        mixed = (mixed ^ ((mixed >> shift) & ((1 << (64 - shift)) - 1))) * factor
    mixed = mixed ^ ((mixed >> 31) & ((1 << 33) - 1))
    return ((mixed >> 11) & ((1 << 53) - 1)).double() / float(1 << 53)


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
