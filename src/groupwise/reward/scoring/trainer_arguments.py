"""The arguments of a reward function that come from the trainer and not from the data, by TRL's names."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field, fields
from typing import Any, final

from groupwise.reward.base import RewardError

TRAINER_ARGUMENTS = frozenset({"trainer_state", "log_metric", "log_extra"})
"""Arguments without an entry a member. `completion_ids`, which has one, is a column that the language domain adds."""

_MOST_CHARACTERS = 10_000


@final
@dataclass(frozen=True)
class TrainerState:
    """The progress of training, as a reward function reads it under the name `trainer_state`.

    Args:
        global_step: steps that are done; during an evaluation before the first step 0.
        max_steps: steps of the whole run; 0 where nothing is trained.
        epoch: prompts drawn over the number of training prompts.

    Example:
        >>> TrainerState(global_step=3, max_steps=10).global_step
        3
        >>> TrainerState().log_history
        Traceback (most recent call last):
        AttributeError: trainer_state has no 'log_history' here; it has global_step, max_steps, epoch
    """

    global_step: int = 0
    max_steps: int = 0
    epoch: float = 0.0

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        members = ", ".join(member.name for member in fields(self))
        raise AttributeError(f"trainer_state has no {name!r} here; it has {members}")

    def table(self) -> dict[str, Any]:
        """Returns the numbers by name, JSON-able."""
        return asdict(self)


@final
@dataclass
class RewardLog:
    """Numbers and columns that one call of a reward logs beside its values.

    Args:
        metrics: name -> the numbers of this batch, which are averaged.
        columns: name -> one entry a member.

    Example:
        >>> log = RewardLog()
        >>> log.log_metric("solved", 0.5)
        >>> log.log_extra("parsed", ["4", None])
        >>> log.metrics, log.columns
        ({'solved': [0.5]}, {'parsed': ['4', None]})
    """

    metrics: dict[str, list[float]] = field(default_factory=dict)
    columns: dict[str, list[Any]] = field(default_factory=dict)

    def log_metric(self, name: str, value: float) -> None:
        """Takes a number, which is averaged over the batch and logged as `logged/NAME`; one that is not finite is left
        out.

        Raises:
            TypeError: the name is no text, or the value is no number.
        """
        if hasattr(value, "item") and getattr(value, "ndim", None) == 0:
            value = value.item()  # type: ignore[union-attr]
        if not isinstance(name, str) or not isinstance(value, int | float):
            raise TypeError(f"log_metric({name!r}, {value!r:.60}) takes a name and a number")
        if math.isfinite(value):
            self.metrics.setdefault(name, []).append(float(value))

    def log_extra(self, column: str, values: Sequence[Any]) -> None:
        """Takes one entry a member, which the member's record in `rollouts/` shows; several calls of one column follow
        each other.

        Raises:
            TypeError: the column is no text, or the values are no list.
        """
        if hasattr(values, "tolist"):
            values = values.tolist()  # type: ignore[union-attr]
        if not isinstance(column, str) or isinstance(values, str) or not isinstance(values, Sequence):
            raise TypeError(f"log_extra({column!r}, {values!r:.60}) takes a column's name and a list")
        self.columns.setdefault(column, []).extend(_plain(value) for value in values)

    def arguments(self, state: TrainerState) -> dict[str, Any]:
        """Returns the trainer's arguments of a call that logs here."""
        return {"trainer_state": state, "log_metric": self.log_metric, "log_extra": self.log_extra}

    def record(self) -> dict[str, Any]:
        """Returns what was logged, JSON-able."""
        return {"metrics": self.metrics, "columns": self.columns}

    def check(self, reward: str, num_members: int) -> None:
        """Refuses a column that has another number of entries than the batch has members.

        Raises:
            RewardError: names the reward, the column and both numbers.
        """
        for column, values in self.columns.items():
            if len(values) != num_members:
                raise RewardError(
                    f"reward {reward!r}: log_extra({column!r}, ...) got {len(values)} entries for {num_members}"
                    " members; log one entry a member",
                    reward=reward,
                )


def _plain(value: Any) -> Any:
    """Returns an entry in JSON's types; anything else becomes its text, and a long text is cut off."""
    if hasattr(value, "item") and getattr(value, "ndim", None) == 0:
        value = value.item()
    if value is None or isinstance(value, bool | int):
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else str(value)
    return str(value)[:_MOST_CHARACTERS]
