"""What every slot of the objective is given: the decisions of some members, with masked places already set to harmless values."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import final

import torch
from torch import Tensor

from groupwise.statistics import Reduce, Statistic, alone

LOG_LIMIT = 80.0
"""Products of ratios are clamped to `exp(+-80)`, which fp32 still holds."""


@final
@dataclass(frozen=True)
class Decisions:
    """Members of one update as the slots see them. All tensors are `[B, T]`, 0 where `mask` is false.

    Args:
        mask: true where a decision counts.
        log_prob: nats, under the policy being trained, with gradient.
        old_log_prob: nats, under the policy that acted.
        advantage: one number a decision.
        behaviour_log_prob: nats, under what really sampled.
        score_norm, step_size, mean_shift: where the objective requires them.
        member: `[B]` ids that do not depend on how members are dealt out.
        draw: the key of this step's random draws.
        reduce: sum over processes.
    """

    mask: Tensor
    log_prob: Tensor
    old_log_prob: Tensor
    advantage: Tensor
    behaviour_log_prob: Tensor | None = None
    score_norm: Tensor | None = None
    step_size: Tensor | None = None
    mean_shift: Tensor | None = None
    member: Tensor | None = None
    draw: int = 0
    reduce: Reduce = alone

    @cached_property
    def log_ratio(self) -> Tensor:
        """`d = lp - lp_old`."""
        return self.log_prob - self.old_log_prob

    @cached_property
    def count(self) -> Tensor:
        """`n [B, 1]`, valid decisions of each member, at least 1 so that it can divide."""
        return self.mask.sum(1, keepdim=True).clamp(min=1).to(self.log_prob.dtype)

    @cached_property
    def position(self) -> Tensor:
        """`[B, T]` integers: the place of a valid decision among the valid ones of its member, from 0."""
        return (self.mask.cumsum(1) - 1).clamp(min=0)

    @cached_property
    def first(self) -> Tensor:
        """`[B, 1]`, the place of each member's first valid decision; 0 for a member without any."""
        return self.mask.to(torch.uint8).argmax(1, keepdim=True)

    @cached_property
    def last(self) -> Tensor:
        """`[B, 1]`, the place of each member's last valid decision; the last place for a member without any."""
        return self.mask.shape[1] - 1 - self.mask.flip(1).to(torch.uint8).argmax(1, keepdim=True)

    @cached_property
    def packed(self) -> bool:
        """True when every member's valid decisions are its first ones."""
        return not bool((self.mask[:, 1:] & ~self.mask[:, :-1]).any())

    def mean(self, values: Tensor) -> Tensor:
        """`[B, 1]`, the mean over the valid decisions of each member; 0 for a member without any."""
        return self.masked(values).sum(1, keepdim=True) / self.count

    def masked(self, values: Tensor, fill: float = 0.0) -> Tensor:
        """`values` with `fill` where the mask is false."""
        return torch.where(self.mask, values, torch.full((), fill, dtype=values.dtype, device=values.device))

    @cached_property
    def occupied(self) -> Tensor:
        """`[B, 1]` bool: members with at least one valid decision."""
        return self.mask.any(1, keepdim=True)


@final
@dataclass(frozen=True)
class Surrogate:
    """What a trust region returns.

    Args:
        value: `S [B, T]`, larger is better.
        alive: `[B, T]` bool, true where the surrogate still carries gradient.
        statistics: what the region measured.
    """

    value: Tensor
    alive: Tensor
    statistics: Mapping[str, Statistic] = field(default_factory=dict)
