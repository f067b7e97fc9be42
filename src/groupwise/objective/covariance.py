"""The covariance of log-prob and advantage over a whole update, decision by decision, and how to pick decisions by it on any number of processes."""

from __future__ import annotations

import torch
from torch import Tensor

from groupwise.objective.decisions import Decisions
from groupwise.objective.stop_gradient import stop_gradient

_BISECTIONS = 80


def covariance(decisions: Decisions) -> Tensor:
    """`(lp - mean(lp)) (A - mean(A))`, `[B, T]` detached, the means over every valid decision of the update on all processes."""
    log_prob = stop_gradient(decisions.log_prob)
    sums = torch.stack([decisions.mask.double().sum(), log_prob.double().sum(), decisions.advantage.double().sum()])
    count, mean_log_prob, mean_advantage = decisions.reduce(sums)
    count = count.clamp(min=1)
    return decisions.masked((log_prob - (mean_log_prob / count).to(log_prob.dtype)) * (decisions.advantage - (mean_advantage / count).to(log_prob.dtype)))


def total(decisions: Decisions, where: Tensor) -> Tensor:
    """How many places of `where` there are on all processes, fp64."""
    return decisions.reduce(where.double().sum())


def threshold_of_largest(values: Tensor, where: Tensor, number: Tensor, decisions: Decisions) -> Tensor:
    """The smallest threshold above which at most `number` of the values lie, on all processes, by bisection on sums alone."""
    kept = torch.where(where, values, torch.zeros_like(values)).double()
    bound = decisions.reduce(kept.abs().sum()) + 1
    low, high = -bound, bound
    for _ in range(_BISECTIONS):
        middle = (low + high) / 2
        too_many = total(decisions, where & (kept >= middle)) > number
        low, high = torch.where(too_many, middle, low), torch.where(too_many, high, middle)
    return high


def keyed_uniform(member: Tensor, width: int, key: int) -> Tensor:
    """`[B, T]` numbers in [0, 1) that depend on (member id, decision, key) alone, so that a draw is the same however the members are dealt out."""
    decision = torch.arange(width, device=member.device)
    mixed = member[:, None] * -7046029254386353131 + decision[None, :] * -4658895280553007687 + key * 1442695040888963407
    for shift, factor in ((30, -4658895280553007687), (27, -7723592293110705685)):
        mixed = (mixed ^ ((mixed >> shift) & ((1 << (64 - shift)) - 1))) * factor
    mixed = mixed ^ ((mixed >> 31) & ((1 << 33) - 1))
    return ((mixed >> 11) & ((1 << 53) - 1)).double() / float(1 << 53)
