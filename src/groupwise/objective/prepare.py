"""Rollouts -> batch: rewards combined, groups compared, admission decided. No gradient; once per batch of rollouts."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Literal

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from groupwise.objective.grouped import FP32_NOISE, Grouped
from groupwise.records import LARGEST_REWARD, Rollouts
from groupwise.statistics import Correlation, Deviation, Mean, Reduce, Statistic, Total, row_count

Partial = Literal["drop", "sum"]

_SAME_SUM = 1e-9
"""Sums of weighted rewards closer than this are the same but for rounding."""
_LARGEST = 1e18


def grouped_rewards(rollouts: Rollouts, partial: Partial, reduce: Reduce, rounding: float = FP32_NOISE) -> Grouped:
    """Returns the weighted sum of all rewards, with its groups.

    A member that lacks a reward is not present (`partial = "drop"`), or has the sum of the others (`"sum"`); one that
    lacks them all is never present. A reward that a whole group lacks says nothing about its prompt, and no member is
    left out for it. Of a reward map, the same holds for each place. Rewards of weight 0 have metrics and no part in the
    sum.

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
    # A member that is not compared is in no baseline of a part either.
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
        # A map has no entry where there was no decision, and none is missing there.
        asked = rollouts.mask if part.present.shape[1] > 1 else torch.ones_like(part.present)
        statistics[f"rewards/{name}/missing"] = Mean.share(~part.present, asked)
        statistics[f"rewards/{name}/weight"] = Mean.number(rewards.weights[name])
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
    """Returns each member's difference from the mean of its group's members that have a reward; 0 where it has none.
    A spread that is no larger than the rounding of equal values is 0.
    """
    masked = torch.where(rewards.present, values, torch.zeros_like(values))
    totals = values.new_zeros(rewards.num_groups, 1).index_add(0, rewards.index, masked)
    counts = values.new_zeros(rewards.num_groups, 1).index_add(0, rewards.index, rewards.present.to(values.dtype))
    means = (totals / counts.clamp(min=1))[rewards.index]
    deviations = torch.where(rewards.present, values - means, torch.zeros_like(values))
    return torch.where(deviations.abs() <= _SAME_SUM * means.abs(), torch.zeros_like(values), deviations)
