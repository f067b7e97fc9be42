"""The input of every slot of the objective: the decisions of some members, with masked places already set to harmless
values.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import KW_ONLY, dataclass, field, fields, replace
from functools import cached_property
from typing import Any, final

import torch
from jaxtyping import Bool, Float, Int, Shaped
from torch import Tensor
from torch.autograd.function import once_differentiable

from groupwise.records import DECISION_FIELDS, DecisionFields, Rollouts
from groupwise.statistics import Mean, Reduce, Statistic, logical_and, row_count, sum_over_one_process

# Recorded decisions: mask, log-probs and further fields, in one record from the rollouts to the slots.


@final
@dataclass(frozen=True)
class Acted(DecisionFields):
    """The decisions of some members, as they were recorded, with the `DecisionFields` that rollouts gave. `Batch`,
    `Plan` and `Decisions` hold it whole.

    Args:
        mask: `[B, T]` bool, true where a decision counts: in a batch the valid ones, in a plan those of admitted
            members.
        old_log_prob: `[B, T]` nats, under the policy that acted.
        member: `[B]` ids that do not depend on how members are dealt out.
        density: whether log-probs are of densities, which may exceed zero.
        packed: whether every member's valid decisions are known to be its first ones; false is always right, and
            slower.

    Example:
        >>> acted = Acted(torch.tensor([[True, True], [True, False]]), torch.tensor([[-1.0, -2.0], [-3.0, torch.nan]]))
        >>> acted.select(torch.tensor([1, -1])).mask.tolist()
        [[True, False], [False, False]]
        >>> acted.clean(torch.float64).old_log_prob.tolist()
        [[-1.0, -2.0], [-3.0, 0.0]]
    """

    mask: Bool[Tensor, "B T"]
    old_log_prob: Float[Tensor, "B T"]
    _: KW_ONLY
    member: Int[Tensor, " B"] | None = None
    density: bool = False
    packed: bool = False

    @staticmethod
    def of(rollouts: Rollouts) -> Acted:
        """Returns the decisions of rollouts; a member without an id gets its place in the batch as id.

        Args:
            rollouts: whole groups.
        """
        member = rollouts.member
        return Acted(
            rollouts.mask,
            rollouts.old_log_prob,
            member=torch.arange(len(rollouts.group), device=rollouts.group.device) if member is None else member,
            density=rollouts.density,
            packed=is_packed(rollouts.mask),
            **rollouts.decision_fields(),
        )

    def __len__(self) -> int:
        return self.mask.shape[0]

    def select(self, rows: Int[Tensor, " N"], decisions: slice | None = None) -> Acted:
        """Returns some members, or a slice of their decisions.

        Args:
            rows: the members' rows, in the new order. A negative row is filler: it repeats member 0, and none of its
                decisions counts.
            decisions: the slice of their decisions; unset takes all.
        """
        picked = {name: part(value, rows, decisions) for name, value in self._tensors().items()}
        picked["mask"] = picked["mask"] & (rows >= 0)[:, None]
        return replace(self, **picked)

    def clean(self, dtype: torch.dtype) -> Acted:
        """Returns the decisions with all their numbers in one dtype, 0 where the mask is false.

        Args:
            dtype: the dtype of the loss.
        """
        numbers = {name: value for name, value in self._tensors().items() if value.is_floating_point()}
        return replace(self, **{name: self.masked(value.to(dtype)) for name, value in numbers.items()})

    def masked(self, values: Float[Tensor, "R K"], fill: float = 0.0) -> Float[Tensor, "B T"]:
        """Returns `values` with `fill` where the mask is false.

        Args:
            values: `[B, T]`, or a shape that broadcasts to it.
            fill: the value at masked places.
        """
        return torch.where(self.mask, values, torch.full((), fill, dtype=values.dtype, device=values.device))

    def _tensors(self) -> dict[str, Tensor]:
        return {f.name: value for f in fields(self) if isinstance(value := getattr(self, f.name), Tensor)}


OPTIONAL = frozenset(DECISION_FIELDS)
"""The fields that a slot may name in `reads`: rollouts have them where the objective asks."""


def part(
    values: Shaped[Tensor, " B *K"], rows: Int[Tensor, " N"], decisions: slice | None = None
) -> Shaped[Tensor, " N *L"]:
    """Returns the values of some members, or of a slice of their decisions where there is one value a decision.

    Args:
        values: one a member, `[B]` or `[B, 1]`, or one a decision, `[B, T]`.
        rows: the members' rows; a negative row repeats member 0.
        decisions: the slice of their decisions; unset takes all.

    Example:
        >>> part(torch.tensor([[1, 2, 3], [4, 5, 6]]), torch.tensor([1]), slice(1, 3)).tolist()
        [[5, 6]]
    """
    chosen = values[rows.clamp(min=0)]
    return chosen if decisions is None or chosen.dim() == 1 or chosen.shape[1] == 1 else chosen[:, decisions]


def is_packed(mask: Bool[Tensor, "B T"]) -> bool:
    """Returns whether every member's valid decisions are its first ones, as those of completions are.

    Args:
        mask: `[B, T]` bool.

    Example:
        >>> is_packed(torch.tensor([[True, True, False]])), is_packed(torch.tensor([[True, False, True]]))
        (True, False)
    """
    gaps = mask[:, 1:] & ~mask[:, :-1]
    return gaps.numel() == 0 or not bool(gaps.view(torch.uint8).amax())


@final
@dataclass(frozen=True)
class Counts:
    """The update as aggregation sees it.

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
        """Returns `[B, T]`: a weight for all, or one a member `[B, 1]`, at its valid decisions; 0 elsewhere."""
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


# The gradient of a member's ratio: each decision's own (the token form), or one that all decisions share.


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
