"""The memory of rewards: values of the training members, gathered from all processes, added once a batch, and saved
with the run.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol, TypeGuard

from torch import Tensor

from groupwise.domain.base import Domain
from groupwise.reward import Rewards, RewardTable
from groupwise.reward.scoring.trainer_arguments import TrainerState
from groupwise.training.distributed import World
from groupwise.training.job import Recipe
from groupwise.training.progress import Progress
from groupwise.training.step.state import TrainState

GroupComparisons = list[tuple[int, dict[str, list[dict[str, list[float]]]]]]
"""Groups as (place in the step, reward -> its comparisons); a comparison is a table of field -> values of members."""


class HasRewards(Protocol):
    """A domain whose rewards may have a memory (`groupwise.reward.components.Follows`)."""

    rewards: Rewards
    num_prompts: int


def _has_rewards(domain: Any) -> TypeGuard[HasRewards]:
    """Returns whether the attribute `rewards` of a domain is a `Rewards`; in an author's domain it may be something
    else.
    """
    return isinstance(getattr(domain, "rewards", None), Rewards)


def reward_remarks(domain: Domain) -> list[str]:
    """Returns the sentences of a domain's rewards about this machine."""
    return domain.rewards.remarks if _has_rewards(domain) else []


def tell_progress(domain: Domain, progress: Progress, recipe: Recipe) -> None:
    """Tells a domain's rewards where the run stands, which functions are given as `trainer_state`.

    Args:
        domain: of the stage.
        progress: of the run.
        recipe: the stage; `max_steps` is the step at which it ends.
    """
    if _has_rewards(domain):
        domain.rewards.state = TrainerState(
            global_step=progress.step,
            max_steps=progress.step - progress.stage_step + recipe.train.num_steps,
            epoch=progress.num_drawn / max(domain.num_prompts, 1),
        )


def restore_reward_memory(domain: Domain, state: TrainState) -> None:
    """Gives a domain's rewards the memory of the run, so that a batch is rewarded by the batches before it, also after
    a resume or in another stage.
    """
    if _has_rewards(domain):
        domain.rewards.recall(state.reward_memory)


def remember(
    domain: Domain, state: TrainState, rounds: Sequence[tuple[Tensor, RewardTable]], world: World
) -> dict[str, float]:
    """Adds a step's rollouts to the memory of the rewards. Every process goes on with that of the first one, which a
    checkpoint keeps.

    Args:
        state: the state of the run, whose memory is updated.
        rounds: for each round the places of the members' groups, and the rewards.
        world: the processes; every process must call this function.

    Returns:
        the rewards' metrics of themselves, by name.
    """
    if not _has_rewards(domain):
        return {}
    local_groups = [group_entry for place, table in rounds for group_entry in group_comparisons(place, table)]
    groups = sorted(
        (group_entry for process_groups in world.gather(local_groups) for group_entry in process_groups),
        key=lambda group_entry: group_entry[0],
    )
    names = dict.fromkeys(name for _, fields in groups for name in fields)
    metrics = domain.rewards.follow(
        {name: [group for _, fields in groups for group in fields.get(name, [])] for name in names}
    )
    # What a reward makes of the batch may be drawn, or round otherwise on another machine.
    state.reward_memory = world.gather(domain.rewards.memory())[0] if domain.rewards.follows else {}
    # An evaluation may come before the next batch.
    domain.rewards.recall(state.reward_memory)
    return metrics


def group_comparisons(place: Tensor, table: RewardTable) -> GroupComparisons:
    """Returns the fields of a table by group. Where a reward has a value for every decision, the same decision of a
    group's members makes one comparison.

    Args:
        place: `[B]`, the place of each member's group in the step.
        table: rewards, with their fields.

    Example:
        >>> import torch
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
        field: [value if isinstance(value, list) else [value] for value in (values[row] for row in rows)]
        for field, values in fields.items()
    }
    num_comparisons = max(
        (len(decision_values) for values in by_field.values() for decision_values in values), default=0
    )
    return [
        {
            field: [decision_values[place] for decision_values in values if len(decision_values) > place]
            for field, values in by_field.items()
        }
        for place in range(num_comparisons)
    ]
