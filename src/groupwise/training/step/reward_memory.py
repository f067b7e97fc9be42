"""What rewards remember of what training saw: gathered from all processes, followed once a batch, saved
with the run.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol, TypeGuard

from torch import Tensor

from groupwise.domain.base import Domain
from groupwise.reward import Rewards, RewardTable
from groupwise.training.distributed import World
from groupwise.training.step.state import TrainState

Seen = list[tuple[int, dict[str, list[dict[str, list[float]]]]]]
"""Groups by their place in the step: reward -> one entry a comparison, field -> values of its members."""


class HasRewards(Protocol):
    """A domain whose rewards may follow what they see (`groupwise.reward.parted.Follows`)."""

    rewards: Rewards


def _has_rewards(domain: Any) -> TypeGuard[HasRewards]:
    """An author's domain may have an attribute of this name that is something else."""
    return isinstance(getattr(domain, "rewards", None), Rewards)


def reward_remarks(domain: Domain) -> list[str]:
    """What a domain's rewards say of themselves on this machine.

    Args:
        domain: of any stage.
    """
    return domain.rewards.remarks if _has_rewards(domain) else []


def recall(domain: Domain, state: TrainState) -> None:
    """Gives a domain's rewards the memory of the run: a batch is rewarded by what came before it, also after a resume
    or in another stage.

    Args:
        domain: of the stage.
        state: of the run.
    """
    if _has_rewards(domain):
        domain.rewards.recall(state.reward_memory)


def remember(
    domain: Domain, state: TrainState, rounds: Sequence[tuple[Tensor, RewardTable]], world: World
) -> dict[str, float]:
    """Lets rewards follow a step's rollouts, on every process alike.

    Args:
        domain: of the stage.
        state: of the run; its memory is the one after this batch.
        rounds: places of members' groups, and their rewards.
        world: the processes; every one must call.

    Returns:
        what the rewards say about themselves, by metric.
    """
    if not _has_rewards(domain):
        return {}
    own = [each for place, table in rounds for each in seen(place, table)]
    everything = sorted((each for part in world.gather(own) for each in part), key=lambda each: each[0])
    names = dict.fromkeys(name for _, fields in everything for name in fields)
    found = domain.rewards.follow(
        {name: [group for _, fields in everything for group in fields.get(name, [])] for name in names}
    )
    state.reward_memory = domain.rewards.memory()
    return found


def seen(place: Tensor, table: RewardTable) -> Seen:
    """The fields of a table, group by group; where a reward was given for every decision, the same decision of a
    group's members is a comparison.

    Args:
        place: `[B]`, of each member's group.
        table: rewards, with fields where there are any.

    Example:
        >>> import torch
        >>> table = RewardTable({"vqa": [1.0, 0.0, 1.0]}, fields={"vqa": {"correct": [1.0, 0.0, 1.0]}})
        >>> seen(torch.tensor([4, 4, 2]), table)
        [(2, {'vqa': [{'correct': [1.0]}]}), (4, {'vqa': [{'correct': [1.0, 0.0]}]})]
    """
    if not table.fields:
        return []
    members: dict[int, list[int]] = {}
    for row, number in enumerate(place.tolist()):
        members.setdefault(number, []).append(row)
    return [
        (number, {name: _compared(fields, rows) for name, fields in table.fields.items()})
        for number, rows in sorted(members.items())
    ]


def _compared(fields: Mapping[str, Sequence[Any]], rows: Sequence[int]) -> list[dict[str, list[float]]]:
    by_field = {
        field: [value if isinstance(value, list) else [value] for value in (values[row] for row in rows)]
        for field, values in fields.items()
    }
    most = max((len(each) for values in by_field.values() for each in values), default=0)
    return [
        {field: [each[place] for each in values if len(each) > place] for field, values in by_field.items()}
        for place in range(most)
    ]
