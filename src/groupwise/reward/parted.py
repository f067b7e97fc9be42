"""A reward with what it was made of: numbers beside the number, for rewards that follow their own parts while training
goes on.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, final, runtime_checkable

Groups = Sequence[Mapping[str, Sequence[float]]]
"""One entry a group: field -> its values for the group's members."""


@final
@dataclass(frozen=True)
class Parted:
    """What a reward returns in place of a list: the rewards, and the fields they were made of.

    Args:
        values: one a member, as a reward returns them.
        fields: field -> one number a member.

    Example:
        >>> Parted([1.5, 0.0], {"correct": [1.0, 0.0], "accuracy": [0.5, 0.0]}).fields["accuracy"]
        [0.5, 0.0]
    """

    values: Sequence[Any]
    fields: Mapping[str, Sequence[float]]


@runtime_checkable
class Follows(Protocol):
    """An opened reward that changes with what training has seen; its memory is explicit, JSON-able and part of every
    checkpoint.

    What it follows are the fields of a whole batch of rollouts, of all processes, given once after the batch was
    rewarded: a batch is rewarded by what came before it, the same on every process.
    """

    def memory(self) -> dict[str, Any]:
        """What it remembers; empty before anything was seen."""
        ...

    def recall(self, memory: Mapping[str, Any]) -> None:
        """Takes a memory back; an empty one forgets.

        Args:
            memory: what `memory` gave.
        """
        ...

    def follow(self, groups: Groups) -> dict[str, float]:
        """Takes in a batch.

        Args:
            groups: of all processes, in the order they were drawn.

        Returns:
            numbers for the metrics, by name.
        """
        ...
