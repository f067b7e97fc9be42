"""What a run remembers of its rewards: what each prompt earned lately, and what rewards keep for themselves."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, final

import torch
from torch import Tensor

from groupwise.domain.base import Domain
from groupwise.domain.protocol import Samples
from groupwise.reward import Rewards, RewardTable
from groupwise.reward.scoring.trainer_arguments import TrainerState
from groupwise.training.distributed import World
from groupwise.training.job import Progress, Recipe

Earned = list[tuple[int, list[float]]]
"""The rewards (weighted sums) of a group's members, beside the place of their prompt in the training set."""

_VISITS = 3
"""Draws of a prompt before it is counted."""
_NEAR = 1e-9


@final
@dataclass
class RewardMemory:
    """The memory of a run's rewards, the same on every process and a part of its checkpoints.

    Args:
        size: the number of rewards that are kept of each prompt.
        last: place of a prompt in the training set -> its last rewards, the newest last.
        draws: place -> how often the stage drew the prompt, and the one value that all its members earned; None once
            two of them differed.
        kept: what the rewards that have a memory keep for themselves, by reward, JSON-able.

    Example:
        >>> memory = RewardMemory(size=3)
        >>> _ = memory.add([(7, [0.0, 1.0]), (2, [5.0])])
        >>> memory.add([(7, [2.0, 3.0])])
        {'history/num_prompts': 2.0, 'history/gain': 2.0}
        >>> memory.past([2, 7, 4]).tolist()
        [[nan, nan, 5.0], [1.0, 2.0, 3.0], [nan, nan, nan]]
    """

    size: int = 0
    last: dict[int, list[float]] = field(default_factory=dict)
    draws: dict[int, tuple[int, float | None]] = field(default_factory=dict)
    kept: dict[str, Any] = field(default_factory=dict)

    def begin_stage(self, recipe: Recipe) -> None:
        """Remembers as many rewards as the stage reads of each prompt's past, and counts draws anew."""
        train, sizes = recipe.train, [0]
        if "reward_history" in recipe.objective.requires_rollouts:
            sizes.append(recipe.objective.advantage.history_size)
        sizes += [rule.memory for rule in (train.adaptive_sampling, train.worst_first) if rule is not None]
        self.size, self.draws = max(sizes), {}

    def past(self, places: Sequence[int]) -> Tensor | None:
        """Returns `[B, size]` fp64, the past of each prompt, oldest first, NaN where the past is shorter; None where
        nothing is remembered.

        Args:
            places: `B` prompts, by place in the training set.
        """
        if not self.size:
            return None
        pasts = [self.last.get(place, [])[-self.size :] for place in places]
        padded = [[float("nan")] * (self.size - len(past)) + past for past in pasts]
        return torch.tensor(padded, dtype=torch.float64).reshape(len(places), self.size)

    def add(self, earned: Iterable[tuple[int, Sequence[float]]]) -> dict[str, float]:
        """Adds the rewards of a step, in one entry a draw, and returns what they say of the prompts.

        Returns:
            `history/gain`, how far the groups' means are above those of their prompts' pasts, and
            `history/num_prompts`, where rewards are remembered; `prompts/revisited`, how many prompts were drawn three
            times or more, and `prompts/one_value`, the share of them that earned one value alone.
        """
        gains: list[float] = []
        for place, rewards in earned:
            if not rewards:
                continue
            num_draws, value = self.draws.get(place, (0, rewards[0]))
            if value is not None and any(abs(reward - value) > _NEAR * max(1.0, abs(value)) for reward in rewards):
                value = None
            self.draws[place] = num_draws + 1, value
            if self.size:
                past = self.last.get(place, [])
                if past:
                    gains.append(sum(rewards) / len(rewards) - sum(past) / len(past))
                self.last[place] = [*past, *rewards][-self.size :]
        revisited = [value is not None for num_draws, value in self.draws.values() if num_draws >= _VISITS]
        metrics: dict[str, float] = {}
        if revisited:
            metrics = {"prompts/revisited": float(len(revisited)), "prompts/one_value": sum(revisited) / len(revisited)}
        if self.size:
            metrics["history/num_prompts"] = float(len(self.last))
        return metrics | ({"history/gain": sum(gains) / len(gains)} if gains else {})

    def follow(self, domain: Domain, rounds: Sequence[Samples], world: World) -> dict[str, float]:
        """Lets the rewards that have a memory learn from a step. Every process goes on with the memory of the first.

        Args:
            rounds: the members of each round of sampling.
            world: the processes; every process must call this method.

        Returns:
            the rewards' metrics of themselves, by name.
        """
        if (rewards := rewards_of(domain)) is None:
            return {}
        local_groups = [group for samples in rounds for group in group_comparisons(samples.place, samples.rewards)]
        groups = sorted((group for share in world.gather(local_groups) for group in share), key=lambda group: group[0])
        comparisons: dict[str, list[dict[str, list[float]]]] = {}
        for _, fields in groups:
            for name, of_group in fields.items():
                comparisons.setdefault(name, []).extend(of_group)
        metrics = rewards.follow(comparisons)
        # A reward may draw numbers for its memory, or round differently on another machine.
        self.kept = world.gather(rewards.memory())[0] if rewards.follows else {}
        # An evaluation may come before the next batch.
        rewards.recall(self.kept)
        return metrics

    def record(self) -> dict[str, Any]:
        """Returns plain values for a checkpoint."""
        last, draws = ({str(place): value for place, value in table.items()} for table in (self.last, self.draws))
        return {"size": self.size, "last": last, "draws": draws, "kept": self.kept}

    @staticmethod
    def from_record(record: Mapping[str, Any]) -> RewardMemory:
        """Restores the memory from what `record` returned.

        Example:
            >>> memory = RewardMemory(size=1, last={7: [1.0]}, draws={7: (3, 1.0)})
            >>> RewardMemory.from_record(memory.record()) == memory
            True
        """
        return RewardMemory(
            record["size"],
            {int(place): rewards for place, rewards in record["last"].items()},
            {int(place): (num_draws, value) for place, (num_draws, value) in record["draws"].items()},
            dict(record["kept"]),
        )


def rewards_of(domain: Any) -> Rewards | None:
    """Returns a domain's rewards, which may have a memory; an author's domain may keep something else by that name."""
    rewards = getattr(domain, "rewards", None)
    return rewards if isinstance(rewards, Rewards) else None


def ready_rewards(domain: Domain, memory: RewardMemory, progress: Progress, recipe: Recipe) -> None:
    """Gives a domain's rewards the memory of the run, also after a resume or in another stage, and tells them where the
    run stands, which functions are given as `trainer_state`.
    """
    if (rewards := rewards_of(domain)) is not None:
        rewards.recall(memory.kept)
        rewards.state = TrainerState(
            global_step=progress.step,
            max_steps=progress.step - progress.stage_step + recipe.train.num_steps,
            epoch=progress.num_drawn / max(domain.num_prompts, 1),
        )


GroupComparisons = list[tuple[int, dict[str, list[dict[str, list[float]]]]]]
"""Groups as (place in the step, reward -> its comparisons); a comparison is a table of field -> values of members."""


def group_comparisons(place: Tensor, table: RewardTable) -> GroupComparisons:
    """Returns the fields of a table by group. Where a reward has a value for every decision, the same decision of a
    group's members makes one comparison.

    Args:
        place: `[B]`, the place of each member's group in the step.
        table: rewards, with their fields.

    Example:
        >>> table = RewardTable({"vqa": [1.0, 0.0, 1.0]}, fields={"vqa": {"correct": [1.0, 0.0, 1.0]}})
        >>> group_comparisons(torch.tensor([4, 4, 2]), table)
        [(2, {'vqa': [{'correct': [1.0]}]}), (4, {'vqa': [{'correct': [1.0, 0.0]}]})]
    """
    if not table.fields:
        return []
    members: dict[int, list[int]] = {}
    for row, number in enumerate(place.tolist()):
        members.setdefault(number, []).append(row)
    return [
        (number, {name: _comparisons(fields, rows) for name, fields in table.fields.items()})
        for number, rows in sorted(members.items())
    ]


def _comparisons(fields: Mapping[str, Sequence[Any]], rows: Sequence[int]) -> list[dict[str, list[float]]]:
    by_field = {
        name: [value if isinstance(value, list) else [value] for value in (values[row] for row in rows)]
        for name, values in fields.items()
    }
    num_comparisons = max((len(of_member) for values in by_field.values() for of_member in values), default=0)
    return [
        {
            name: [of_member[place] for of_member in values if len(of_member) > place]
            for name, values in by_field.items()
        }
        for place in range(num_comparisons)
    ]
