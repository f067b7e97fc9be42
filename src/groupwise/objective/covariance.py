"""The covariance of log-prob and advantage over a whole update, decision by decision, and how to pick decisions by it
on any number of processes.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from jaxtyping import Bool, Float, Int, Shaped
from torch import Tensor

from groupwise.objective.decisions import Decisions
from groupwise.objective.stop_gradient import stop_gradient
from groupwise.statistics import Reduce, row_count, total

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
