"""From rollouts to the plan of one optimiser step: the recorded decisions, rewards combined and compared inside their
groups, admission, weights. No gradient; a batch is prepared once and kept for every update on it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, field, replace
from typing import Literal, final

import torch
from jaxtyping import Bool, Float, Int, Shaped
from torch import Tensor

from groupwise.config import Config
from groupwise.records import DECISION_FIELDS, LARGEST_REWARD, DecisionFields, Rollouts, tensors_of
from groupwise.statistics import Correlation, Deviation, Mean, Reduce, Statistic, Total, row_count, sum_over_one_process
from groupwise.transfer import moved


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
        >>> acted.masked(acted.old_log_prob).tolist()
        [[-1.0, -2.0], [-3.0, 0.0]]
    """

    mask: Bool[Tensor, "B T"]
    old_log_prob: Float[Tensor, "B T"]
    _: KW_ONLY
    member: Int[Tensor, " B"] | None = None
    density: bool = False
    packed: bool = False

    def __len__(self) -> int:
        return self.mask.shape[0]

    def select(self, rows: Int[Tensor, " N"], decisions: slice | None = None) -> Acted:
        """Returns some members, or a slice of their decisions.

        Args:
            rows: the members' rows, in the new order. A negative row is filler: it repeats member 0, and none of its
                decisions counts.
            decisions: the slice of their decisions; unset takes all.
        """
        picked = {name: part(value, rows, decisions) for name, value in tensors_of(self).items()}
        picked["mask"] = picked["mask"] & (rows >= 0)[:, None]
        return replace(self, **picked)

    def masked(self, values: Float[Tensor, "R K"], fill: float = 0.0) -> Float[Tensor, "B T"]:
        """Returns `values` with `fill` where the mask is false.

        Args:
            values: `[B, T]`, or a shape that broadcasts to it.
            fill: the value at masked places.
        """
        return torch.where(self.mask, values, torch.full((), fill, dtype=values.dtype, device=values.device))


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
class Running(Config):
    """Exponential averages of the batch's mean, its standard deviation, and the standard deviation of rewards less
    their group's mean.

    `s <- decay s + (1 - decay) x`, `w <- decay w + (1 - decay)`, value `s / w`: the first batch gives exactly its own
    numbers.

    Example:
        >>> running = (
        ...     Running()
        ...     .follow(mean=1.0, std=2.0, centred_std=0.5, decay=0.9)
        ...     .follow(mean=1.0, std=4.0, centred_std=0.5, decay=0.9)
        ... )
        >>> round(running.mean, 6), round(running.std, 6), round(running.centred_std, 6)
        (1.0, 3.052632, 0.5)
    """

    mean_sum: float = 0.0
    std_sum: float = 0.0
    centred_std_sum: float = 0.0
    weight: float = 0.0

    def follow(self, mean: float, std: float, centred_std: float, decay: float) -> Running:
        """Returns the average after one more batch."""
        return Running(
            mean_sum=decay * self.mean_sum + (1 - decay) * mean,
            std_sum=decay * self.std_sum + (1 - decay) * std,
            centred_std_sum=decay * self.centred_std_sum + (1 - decay) * centred_std,
            weight=decay * self.weight + (1 - decay),
        )

    @property
    def mean(self) -> float:
        return self.mean_sum / self.weight if self.weight > 0 else 0.0

    @property
    def std(self) -> float:
        return self.std_sum / self.weight if self.weight > 0 else 0.0

    @property
    def centred_std(self) -> float:
        return self.centred_std_sum / self.weight if self.weight > 0 else 0.0


FP32_NOISE = 4 * 2.0**-23
"""The last four units of fp32: the part of a reward by which a model that computes in fp32 may be wrong."""
_TINY = torch.finfo(torch.float64).tiny


@final
@dataclass(frozen=True)
class Grouped:
    """Rewards with their groups. Shapes `[B, K]`: `K = 1`, or `T` for reward maps, which are compared place by place.

    Args:
        value: fp64 rewards, 0 where missing.
        present: bool, false where a reward is missing.
        index: `[B]` integers from 0, the member's group.
        num_groups: the number of groups.
        length: `[B, 1]` fp64, valid decisions of each member.
        parts: each reward by itself, for advantages that treat them apart.
        weights: the weight of each part.
        reduce: sum over processes, for statistics of the whole batch.
        history: `[B, H]` fp64, earlier rewards of the member's prompt, oldest first, NaN where there are fewer.
        rounding: rewards of a group that differ by no more than this part of the largest are equal.

    Attributes:
        group_size, size: members whose reward is present, of each group `[P, K]` and of each member's group `[B, K]`.
        mean: `[B, K]`, the mean of each member's group.
        lowest, highest: `[P, K]`, plus and minus infinity for a group without a reward.
        group_flat, flat: bool, of each group `[P, K]` and of each member's group `[B, K]`: there is no comparison,
            because all present rewards are equal within rounding, or fewer than two are present. Numbers below the
            smallest normal one have no digits, and are equal to 0.
    """

    value: Float[Tensor, "B K"]
    present: Bool[Tensor, "B K"]
    index: Int[Tensor, " B"]
    num_groups: int
    length: Float[Tensor, "B 1"]
    parts: Mapping[str, Grouped] = field(default_factory=dict)
    weights: Mapping[str, float] = field(default_factory=dict)
    reduce: Reduce = sum_over_one_process
    history: Float[Tensor, "B H"] | None = None
    rounding: float = FP32_NOISE
    group_size: Float[Tensor, "P K"] = field(init=False)
    size: Float[Tensor, "B K"] = field(init=False)
    mean: Float[Tensor, "B K"] = field(init=False)
    lowest: Float[Tensor, "P K"] = field(init=False)
    highest: Float[Tensor, "P K"] = field(init=False)
    group_flat: Bool[Tensor, "P K"] = field(init=False)
    flat: Bool[Tensor, "B K"] = field(init=False)

    def __post_init__(self) -> None:
        present = self.present.to(self.value.dtype)
        group_size = present.new_zeros(self.num_groups, present.shape[1]).index_add(0, self.index, present)
        size = group_size[self.index]
        index, ends = self.index[:, None].expand_as(self.value), dict[str, Tensor]()
        for reduction, fill in (("amin", math.inf), ("amax", -math.inf)):
            present_values = torch.where(self.present, self.value, torch.full_like(self.value, fill))
            nothing = present_values.new_full(group_size.shape, fill)
            ends[reduction] = nothing.scatter_reduce(0, index, present_values, reduction)
        lowest, highest = ends["amin"], ends["amax"]
        rounding = (self.rounding * torch.maximum(highest.abs(), lowest.abs())).clamp(min=_TINY)
        flat = (highest - lowest <= rounding) | (group_size < 2)
        # The record is frozen once it is built.
        vars(self).update(
            group_size=group_size,
            size=size,
            mean=self.sum(self.value) / size.clamp(min=1),
            lowest=lowest,
            highest=highest,
            group_flat=flat,
            flat=flat[self.index],
        )

    @staticmethod
    def of(*groups: Sequence[float]) -> Grouped:
        """Returns a single reward for members of one decision, from plain lists.

        Args:
            groups: the rewards of each group's members.

        Example:
            >>> Grouped.of([1.0, 0.0], [0.5, 0.5]).flat[:, 0].tolist()
            [False, False, True, True]
        """
        value = torch.tensor([[reward] for group in groups for reward in group], dtype=torch.float64)
        index = torch.tensor([place for place, group in enumerate(groups) for _ in group])
        single = Grouped(value, torch.ones_like(value, dtype=torch.bool), index, len(groups), torch.ones_like(value))
        return replace(single, parts={"reward": single}, weights={"reward": 1.0})

    def sum(self, values: Float[Tensor, "B K"]) -> Float[Tensor, "B K"]:
        """Returns `[B, K]`, the sum of `values` over the present members of each member's group."""
        present_values = torch.where(self.present, values, torch.zeros_like(values))
        sums = present_values.new_zeros(self.num_groups, values.shape[1]).index_add(0, self.index, present_values)
        return sums[self.index]

    def std(self, ddof: int) -> Float[Tensor, "B K"]:
        """Returns `[B, K]`, the group's standard deviation; 0 where fewer than `ddof + 1` members are present."""
        squares = self.sum((self.value - self.mean).square())
        return (squares / (self.size - ddof).clamp(min=1)).sqrt()

    def by_group(self, function: Callable[[Tensor], Tensor | float]) -> Float[Tensor, "B K"]:
        """Returns `[B, K]`, a statistic of each member's group; 0 where the group has no reward.

        Args:
            function: of the present rewards of one group, `[n]`, such as `torch.median`.

        Example:
            >>> Grouped.of([1.0, 0.0, 5.0], [0.5, 0.5]).by_group(torch.median)[:, 0].tolist()
            [1.0, 1.0, 1.0, 0.5, 0.5]
        """
        statistic = torch.zeros_like(self.group_size)
        for group in range(self.num_groups):
            rows = self.index == group
            for place in range(self.value.shape[1]):
                if len(values := self.value[rows, place][self.present[rows, place]]):
                    statistic[group, place] = function(values)
        return statistic[self.index]

    def compared(self, advantage: Float[Tensor, "B K"]) -> Float[Tensor, "B K"]:
        """Returns `advantage` where the group gives a comparison and the reward is present, exactly 0 elsewhere."""
        return torch.where(self.present & ~self.flat, advantage, torch.zeros_like(advantage))

    def batch_moments(
        self, values: Float[Tensor, "B K"], ddof: int = 1
    ) -> tuple[Float[Tensor, ""], Float[Tensor, ""], Float[Tensor, ""]]:
        """Returns count, mean and standard deviation of `values` over all present rewards of all processes."""
        present_values = torch.where(self.present, values, torch.zeros_like(values))
        count, total = self.reduce(torch.stack([self.present.double().sum(), present_values.sum()]))
        mean = total / count.clamp(min=1)
        squares = self.reduce(torch.where(self.present, (values - mean).square(), torch.zeros_like(values)).sum())
        return count, mean, (squares / (count - ddof).clamp(min=1)).sqrt()

    def with_value(self, value: Float[Tensor, "B K"]) -> Grouped:
        """Returns the groups with other rewards."""
        return replace(self, value=torch.where(self.present, value, torch.zeros_like(value)))


Partial = Literal["drop", "sum"]

_SAME_SUM = 1e-9
"""Sums of weighted rewards that differ by less than this are equal except for rounding."""
_LARGEST = 1e18


def grouped_rewards(rollouts: Rollouts, partial: Partial, reduce: Reduce, rounding: float = FP32_NOISE) -> Grouped:
    """Returns the weighted sum of all rewards, with its groups.

    A member that lacks a reward is not present (`partial = "drop"`), or has the sum of the others (`"sum"`); one that
    lacks them all is never present. A reward that a whole group lacks carries no information about its prompt, and no
    member is left out for it. Of a reward map, the same holds for each place. Rewards of weight 0 have metrics and no
    part in the sum.

    Args:
        rollouts: whole groups.
        partial: the effect of a missing reward on a member.
        reduce: sum over processes.
        rounding: rewards of a group that differ by no more than this part of the largest are equal.
    """
    members, width = rollouts.mask.shape
    _, index = torch.unique(rollouts.group, return_inverse=True)
    num_groups = int(index.max()) + 1 if members else 0
    length = row_count(rollouts.mask).double()
    # `Rollouts` has turned every reward into a tensor.
    given_rewards = {name: value for name, value in rollouts.rewards.items() if isinstance(value, Tensor)}
    wide = any(value.dim() == 2 for value in given_rewards.values())
    weights = {name: float(rollouts.reward_weights.get(name, 1.0)) for name in rollouts.rewards}
    total = length.new_zeros(members, width if wide else 1)
    rewarded = [name for name in given_rewards if weights[name] != 0.0]
    present, lacking = torch.zeros_like(total, dtype=torch.bool), torch.zeros_like(total, dtype=torch.bool)
    shaped: dict[str, tuple[Tensor, Tensor]] = {}
    for name, reward in given_rewards.items():
        value, present_here = shaped[name] = (
            (reward, rollouts.reward_present[name])
            if reward.dim() == 2
            else (reward[:, None], rollouts.reward_present[name][:, None])
        )
        if name not in rewarded:
            continue
        total = total + weights[name] * torch.where(present_here, value, 0.0)
        present = present | present_here
        given_to = torch.bincount(index[present_here.any(dim=1)], minlength=num_groups) > 0
        lacking = lacking | (given_to[index, None] & ~present_here)
    if partial == "drop":
        present = present & ~lacking
    if wide:
        present = present & rollouts.mask
    total = torch.where(present, total, 0.0)
    # Members that are left out of the comparison are left out of each reward's baseline too.
    compared = {1: present.any(dim=1, keepdim=True), present.shape[1]: present}
    parts = {
        name: Grouped(
            value,
            here & compared[here.shape[1]] if name in rewarded else here,
            index,
            num_groups,
            length,
            reduce=reduce,
            rounding=rounding,
        )
        for name, (value, here) in shaped.items()
    }
    if total.numel() and not (size := float(total.abs().amax())) <= LARGEST_REWARD:
        raise ValueError(
            f"the weighted sum of rewards comes to {size:.6g}, whose square overflows; lower Rollouts.reward_weights,"
            f" {weights}"
        )
    return Grouped(total, present, index, num_groups, length, parts, weights, reduce, rollouts.reward_history, rounding)


def check_size(advantage: Float[Tensor, "B K"], called: str) -> None:
    """Refuses advantages that gradients in fp32, or the squares of gradients in an optimiser, would not hold.

    Args:
        advantage: `[B, K]`.
        called: the key and value of the advantage in the configuration, for the error.

    Raises:
        ValueError: an advantage is larger than 1e18, or not a number, since rewards or weights that large cancelled.

    Example:
        >>> check_size(torch.tensor([[1.0], [-2e18]]), "advantage.kind = 'centred'")  # doctest: +ELLIPSIS
        Traceback (most recent call last):
        ValueError: advantage.kind = 'centred' gives advantages up to 2e+18, and fp32 holds the squares of no more than 1e+18; ...
    """  # noqa: E501
    size = float(advantage.abs().amax()) if advantage.numel() else 0.0
    if not size <= _LARGEST:
        raise ValueError(
            f"{called} gives advantages up to {size:.6g}, and fp32 holds the squares of no more than {_LARGEST:.0e}; "
            "divide the reward or its weight, or bound the advantage with advantage.clip where it has one"
        )


def measure_rewards(
    rewards: Grouped,
    advantage: Float[Tensor, "B K"],
    admitted: Bool[Tensor, " P"],
    rollouts: Rollouts,
    summands: Mapping[str, Float[Tensor, "B K"]],
    penalty: Float[Tensor, " B"] | None = None,
) -> dict[str, Statistic]:
    """Returns the reward and advantage metrics, under TRL's names and source 001's.

    A flat group is all right where its rewards come to the most that the weighted sum can be, all wrong where to the
    least (`Rollouts.reward_bounds`). A reward's share in what is compared is the part of the variance inside groups
    that its summand makes, `sum x_k x / sum x^2` with `x = sum_k x_k`. Correlations are those inside groups, of a
    reward with the number of decisions, of a reward of weight 0 with the weighted sum, and of the advantage with what
    it compares: the summands, less a penalty.

    Args:
        rewards: the weighted sum, with its groups and parts.
        advantage: `[B, K]`.
        admitted: `[num_groups]` bool.
        rollouts: the rollouts of the rewards.
        summands: the term of each weighted reward in the comparison that the advantage makes.
        penalty: `[B]`, what was taken off the rewards before they were compared.
    """
    flat = rewards.group_flat.all(dim=1)
    group_std = rewards.value.new_zeros(rewards.num_groups).scatter(0, rewards.index, rewards.std(1).mean(dim=1))
    scorable = rewards.present.any(dim=1)
    statistics: dict[str, Statistic] = {
        "reward": Mean.of(rewards.value, rewards.present),
        "reward_std": Mean.of(group_std, torch.ones_like(flat)),
        "frac_reward_zero_std": Mean.share(flat, torch.ones_like(flat)),
        "rewards_mean": Mean.of(rewards.value, rewards.present),
        "rewards_std": Deviation.of(rewards.value, rewards.present),
        "advantages_mean": Mean.of(advantage, rewards.present),
        "advantages_std": Deviation.of(advantage, rewards.present),
        **_group_statistics(rewards, admitted, rollouts.reward_bounds),
        "members/unscorable": Total.of((~scorable).sum()),
        "completions/mean_length": Mean.of(rewards.length[:, 0], torch.ones_like(scorable)),
    }
    comparison = sum(summands.values(), torch.zeros_like(rewards.value))
    if rollouts.truncated is not None:
        statistics["completions/clipped_ratio"] = Mean.share(rollouts.truncated, torch.ones_like(scorable))
    if rewards.value.shape[1] == 1:
        lengths = rewards.length.to(rewards.value.dtype)
        statistics["groups/length_correlation"] = Correlation.of(
            _deviations(rewards.value, rewards), _deviations(lengths, rewards)
        )
    if rewards.value.shape[1] == advantage.shape[1] == 1:
        penalised = comparison if penalty is None else comparison - penalty[:, None]
        statistics["advantages/agreement"] = Correlation.of(
            _deviations(penalised, rewards), _deviations(advantage.to(penalised.dtype), rewards)
        )
    for name, compared_part in rewards.parts.items():
        given = rollouts.reward_present[name]
        part = replace(compared_part, present=given if given.dim() == 2 else given[:, None])
        statistics[f"rewards/{name}/mean"] = Mean.of(part.value, part.present)
        statistics[f"rewards/{name}/std"] = Deviation.of(part.value, part.present)
        # Maps have no entry at masked decisions, which therefore do not count as missing.
        asked = rollouts.mask if part.present.shape[1] > 1 else torch.ones_like(part.present)
        statistics[f"rewards/{name}/missing"] = Mean.share(~part.present, asked)
        statistics[f"rewards/{name}/weight"] = Mean.ratio(rewards.weights[name], 1.0)
        if rewards.weights[name] == 0 and part.present.shape[1] == rewards.value.shape[1] == 1:
            both = replace(rewards, present=rewards.present & part.present)
            statistics[f"rewards/{name}/agreement"] = Correlation.of(
                _deviations(part.value, both), _deviations(rewards.value, both)
            )
        if name in summands:
            statistics[f"rewards/{name}/share"] = Mean.ratio(
                (summands[name] * comparison).sum(), comparison.square().sum()
            )
    return statistics


def _group_statistics(
    rewards: Grouped, admitted: Bool[Tensor, " P"], reward_bounds: Mapping[str, tuple[float, float]]
) -> dict[str, Statistic]:
    ends = {name: reward_bounds.get(name, (0.0, 1.0)) for name in rewards.parts}
    worst, best = (
        sum(pick(rewards.weights[name] * end for end in bounds) for name, bounds in ends.items()) for pick in (min, max)
    )
    near = _SAME_SUM * max(1.0, abs(worst), abs(best))
    flat = rewards.group_flat.all(dim=1)
    compared = torch.ones_like(flat)
    nothing = torch.full_like(rewards.highest, float("nan"))
    level = torch.where(rewards.highest.isfinite(), rewards.highest, nothing).nanmean(dim=1)
    spread = torch.where(rewards.highest.isfinite(), rewards.highest - rewards.lowest, nothing).nanmean(dim=1)
    mean = rewards.value.new_zeros(rewards.num_groups).scatter(0, rewards.index, rewards.mean.mean(dim=1))
    scorable = rewards.highest.isfinite().any(dim=1)
    return {
        "groups/flat": Mean.share(flat, compared),
        "groups/all_right": Mean.share(flat & ((level - best).abs() <= near), compared),
        "groups/all_wrong": Mean.share(flat & ((level - worst).abs() <= near), compared),
        "groups/too_small": Total.of((rewards.group_size < 2).all(dim=1).sum()),
        "groups/admitted": Mean.share(admitted, compared),
        "groups/mean_std": Deviation.of(mean, scorable),
        "groups/range": Mean.of(torch.where(scorable, spread, 0.0), scorable),
        "groups/best": Mean.of(torch.where(scorable, level, 0.0), scorable),
        "groups/solved": Mean.share(scorable & (rewards.highest > 0).any(dim=1), scorable),
    }


def _deviations(values: Float[Tensor, "B 1"], rewards: Grouped) -> Float[Tensor, "B 1"]:
    """Returns each member's difference from the mean of the rewards in its group; 0 where it has no reward. If the
    spread is no larger than the rounding of equal values, it is 0.
    """
    masked = torch.where(rewards.present, values, torch.zeros_like(values))
    totals = values.new_zeros(rewards.num_groups, 1).index_add(0, rewards.index, masked)
    counts = values.new_zeros(rewards.num_groups, 1).index_add(0, rewards.index, rewards.present.to(values.dtype))
    means = (totals / counts.clamp(min=1))[rewards.index]
    deviations = torch.where(rewards.present, values - means, torch.zeros_like(values))
    return torch.where(deviations.abs() <= _SAME_SUM * means.abs(), torch.zeros_like(values), deviations)


@final
class ObjectiveState(Config):
    """State of an objective. Passed in and returned, never hidden.

    Args:
        step: optimiser steps so far; schedules read it.
        beta: the current coefficient of an adaptive divergence, `None` for schedules that depend on the step alone.
        entropy: the same of the entropy bonus.
        running: running statistics of rewards, for advantages that use them.

    Example:
        >>> state = ObjectiveState(step=3)
        >>> ObjectiveState.model_validate(state.model_dump(mode="json")) == state
        True
    """

    step: int = 0
    beta: float | None = None
    entropy: float | None = None
    running: Running = Running()


@final
@dataclass(frozen=True)
class Batch:
    """Members ready for updates.

    Args:
        acted: their decisions, as recorded.
        advantage: `[B, K]` fp64, `K` 1 or `T`.
        sampled: `[B]` bool, members that count: false for one whose reward is missing.
        admitted: `[B]` bool, those of admitted groups.
        prompt: `[B]` integers from 0, the member's group.
        num_prompts: the number of groups.
        state: the objective's state after this batch.
        auxiliary_count: name -> `[B]`.
        statistics: the metrics of the rewards and advantages.
    """

    acted: Acted
    advantage: Float[Tensor, "B K"]
    sampled: Bool[Tensor, " B"]
    admitted: Bool[Tensor, " B"]
    prompt: Int[Tensor, " B"]
    num_prompts: int
    state: ObjectiveState
    auxiliary_count: Mapping[str, Float[Tensor, " B"]] = field(default_factory=dict)
    statistics: Mapping[str, Statistic] = field(default_factory=dict)

    @staticmethod
    def of(acted: Acted, advantage: Float[Tensor, "B K"], state: ObjectiveState) -> Batch:
        """Returns a batch of members whose advantages were computed elsewhere, all admitted and of one group.

        Args:
            acted: the members' decisions.
            advantage: `[B, K]` fp64.
            state: the state of the objective.
        """
        members = len(acted)
        return Batch(
            acted,
            advantage,
            sampled=(everyone := torch.ones(members, dtype=torch.bool, device=advantage.device)),
            admitted=everyone,
            prompt=torch.zeros(members, dtype=torch.long, device=advantage.device),
            num_prompts=1,
            state=state,
        )

    def __len__(self) -> int:
        return len(self.acted)

    def to(self, device: torch.device) -> Batch:
        """Returns the members on a device; the statistics stay where they are, until they are logged."""
        return replace(moved(replace(self, statistics={}), device), statistics=self.statistics)

    def select(self, rows: Int[Tensor, " N"]) -> Batch:
        """Returns some members, for one optimiser step."""
        return replace(
            self,
            acted=self.acted.select(rows),
            advantage=self.advantage[rows],
            sampled=self.sampled[rows],
            admitted=self.admitted[rows],
            prompt=self.prompt[rows],
            auxiliary_count={name: count[rows] for name, count in self.auxiliary_count.items()},
        )


@final
@dataclass(frozen=True)
class Plan:
    """Everything that `loss` needs, except the live scores.

    Args:
        acted: the recorded decisions; the mask holds the valid decisions of admitted members.
        real: `[B]` bool, false for filler rows.
        weight: `[B, T]` aggregation weights `w`, fp64.
        correction: `[B, T]` behaviour correction `k`, fp64; `None` without a correction.
        advantage: `[B, K]` fp64.
        policy_weight, beta, entropy: coefficients of this step.
        auxiliary: name -> coefficient over global denominator.
        constants: numbers to carry into the metrics.
        draw: the key of this step's random draws.
        reduce: sum over processes, for scope `batch`.
        whole: true for the plan of a whole update, false for one of its micro-batches.
        sliced: true for a slice of members' decisions.
        detail: whether percentiles are measured.
        not_finite: the treatment of a live log-prob that is not finite: it is refused, or left out and counted.
    """

    acted: Acted
    real: Bool[Tensor, " B"]
    weight: Float[Tensor, "B T"]
    correction: Float[Tensor, "B T"] | None
    advantage: Float[Tensor, "B K"]
    policy_weight: float
    beta: float
    entropy: float
    auxiliary: Mapping[str, Float[Tensor, ""]]
    constants: Mapping[str, float]
    draw: int = 0
    reduce: Reduce = sum_over_one_process
    whole: bool = True
    sliced: bool = False
    detail: bool = True
    not_finite: Literal["refused", "counted"] = "refused"

    def __len__(self) -> int:
        return len(self.acted)

    def select(self, rows: Int[Tensor, " N"], decisions: slice | None = None) -> Plan:
        """Returns one micro-batch of whole members, or (only where the objective's scope is `decision`) a slice of
        their decisions.

        A negative row is filler: it repeats member 0 with weight 0, so that processes with fewer members run as many
        micro-batches.
        """
        weight = part(self.weight, rows, decisions)
        return replace(
            self,
            acted=self.acted.select(rows, decisions),
            real=part(self.real, rows) & (rows >= 0),
            weight=torch.where((rows < 0)[:, None], 0.0, weight),
            correction=None if self.correction is None else part(self.correction, rows, decisions),
            advantage=part(self.advantage, rows, decisions),
            whole=False,
            sliced=self.sliced or decisions is not None,
        )
