"""A reward with its components: numbers beside the reward, for rewards that adapt to their own components during
training.
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
    """The return value of a reward that reports its components: the rewards, and the fields from which they were
    computed.

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
    """An opened reward that changes with the batches that training has seen. Its memory is explicit, JSON-able and part
    of every checkpoint.

    What it follows are the fields of a whole batch of rollouts, of all processes, given once after the batch was
    rewarded: a batch is rewarded by what came before it, the same on every process.
    """

    def memory(self) -> dict[str, Any]:
        """Returns the reward's memory; empty before the first batch."""
        ...

    def recall(self, memory: Mapping[str, Any]) -> None:
        """Restores a memory; an empty memory resets the reward."""
        ...

    def follow(self, groups: Groups) -> dict[str, float]:
        """Updates the memory with a batch.

        Args:
            groups: of all processes, in the order they were drawn.

        Returns:
            numbers for the metrics, by name.
        """
        ...
