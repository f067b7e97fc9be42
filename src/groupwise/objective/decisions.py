"""The input of every slot of the objective: the decisions of some members, with masked places already set to harmless
values.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields, replace
from functools import cached_property
from typing import Any, final

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from groupwise.objective.acted import Acted
from groupwise.statistics import Mean, Reduce, Statistic, logical_and, row_count, sum_over_one_process

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

    @property
    def mask(self) -> Bool[Tensor, "B T"]:
        """True where a decision counts: the one field of `acted` that every slot reads."""
        return self.acted.mask

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
    def good(self) -> Bool[Tensor, "B K"]:
        """Bool, `A > 0`: `[B, T]`, or `[B, 1]` where members have one advantage. Says nothing where the
        mask is false.
        """
        return (self.advantage if self.member_advantage is None else self.member_advantage) > 0

    @cached_property
    def bad(self) -> Bool[Tensor, "B K"]:
        """Bool, `A < 0`, in the same shape."""
        return (self.advantage if self.member_advantage is None else self.member_advantage) < 0

    @cached_property
    def taught(self) -> Bool[Tensor, "B T"]:
        """Bool, the valid decisions whose own advantage is not 0."""
        return logical_and(self.mask, self.advantage != 0)

    def detached(self) -> Decisions:
        """Returns the decisions without gradient, for metrics: a metric that is read later must not keep the graph
        alive.
        """
        return replace(
            self, **{f.name: value.detach() for f in fields(self) if isinstance(value := getattr(self, f.name), Tensor)}
        )

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
