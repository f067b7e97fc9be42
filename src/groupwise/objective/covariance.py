"""The covariance of log-prob and advantage over a whole update, decision by decision, and how to pick decisions by it on any number of processes."""

from __future__ import annotations

import torch
from torch import Tensor

from groupwise.objective.decisions import Decisions
from groupwise.objective.stop_gradient import stop_gradient
from groupwise.statistics import Reduce

_DIGIT_BITS = 16
_DIGITS = 1 << _DIGIT_BITS


def covariance(decisions: Decisions) -> Tensor:
    """`(lp - mean(lp)) (A - mean(A))`, `[B, T]` detached, the means over every valid decision of the update on all processes."""
    log_prob = stop_gradient(decisions.log_prob)
    sums = torch.stack([decisions.mask.double().sum(), log_prob.double().sum(), decisions.advantage.double().sum()])
    count, mean_log_prob, mean_advantage = decisions.reduce(sums)
    count = count.clamp(min=1)
    return decisions.masked((log_prob - (mean_log_prob / count).to(log_prob.dtype)) * (decisions.advantage - (mean_advantage / count).to(log_prob.dtype)))


def share_of(share: float, decisions: Decisions) -> Tensor:
    """`max(1, floor(share N))`, `N` the valid decisions of the update on all processes."""
    return (share * decisions.reduce(decisions.mask.double().sum())).floor().clamp(min=1)


def largest(values: Tensor, where: Tensor, number: Tensor, reduce: Reduce) -> Tensor:
    """Where the `number` largest of the values stand, on all processes together. Ties for the last places that do not all fit are left out.

    The numbers are read as integers of the same order, 16 bits at a time from the top: each pass counts how many candidates share each digit, which is all
    that processes exchange. Exact, whatever the dtype.

    Args:
        values: `[B, T]` fp32 or fp64, finite where `where` is true.
        where: `[B, T]` bool, the candidates.
        number: scalar, how many are wanted over all processes.
        reduce: sum over processes.

    Returns:
        `[B, T]` bool.
    """
    bits = torch.int32 if values.dtype == torch.float32 else torch.int64
    width = torch.iinfo(bits).bits
    # Adding zero turns -0 into 0; a negative number's bits count downwards.
    raw = (torch.where(where, values, torch.zeros_like(values)) + 0.0).view(bits)
    key = (raw ^ ((raw >> (width - 1)) & torch.iinfo(bits).max)).long()
    chosen, candidates, left = torch.zeros_like(where), where, number.double()
    for shift in range(width - _DIGIT_BITS, -1, -_DIGIT_BITS):
        digit = (key >> shift) & (_DIGITS - 1)
        if shift == width - _DIGIT_BITS:
            digit = digit ^ (_DIGITS >> 1)  # the sign: negative numbers below
        counts = torch.zeros(_DIGITS, dtype=torch.float64, device=values.device).index_add_(0, digit.flatten(), candidates.flatten().double())
        from_above = torch.cat([reduce(counts).flip(0).cumsum(0).flip(0), counts.new_zeros(1)])
        cut = _DIGITS + 1 - (from_above <= left).sum()  # the smallest digit that fits with all above it
        chosen = chosen | (candidates & (digit >= cut))
        left = left - from_above[cut]
        candidates = candidates & (digit == cut - 1)
    return chosen


def keyed_uniform(member: Tensor, width: int, key: int) -> Tensor:
    """`[B, T]` numbers in [0, 1) that depend on (member id, decision, key) alone, so that a draw is the same however the members are dealt out."""
    decision = torch.arange(width, device=member.device)
    mixed = member[:, None] * -7046029254386353131 + decision[None, :] * -4658895280553007687 + key * 1442695040888963407
    for shift, factor in ((30, -4658895280553007687), (27, -7723592293110705685)):
        mixed = (mixed ^ ((mixed >> shift) & ((1 << (64 - shift)) - 1))) * factor
    mixed = mixed ^ ((mixed >> 31) & ((1 << 33) - 1))
    return ((mixed >> 11) & ((1 << 53) - 1)).double() / float(1 << 53)
