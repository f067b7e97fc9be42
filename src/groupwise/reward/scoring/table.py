"""The rewards of a batch: every reward by itself, their weighted sum, and what a reward function is given and logs."""

from __future__ import annotations

import functools
import inspect
import math
import re
from collections.abc import Callable, Collection, Hashable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from numbers import Real
from typing import Any, Literal, final

from groupwise.reward.base import Noted, RewardError
from groupwise.reward.completions import Content, Text, excerpt, prompt_text

TRAINER_ARGUMENTS = frozenset({"trainer_state", "log_metric", "log_extra"})
"""Arguments that the trainer gives once per call, and not once per member. `completion_ids`, which has an entry per
member, is a column that the language domain adds.
"""

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


@final
@dataclass
class RewardLog:
    """Numbers and columns that one call of a reward logs in addition to its values.

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
            TypeError: the name is not a text, or the value is not a number.
        """
        value = scalar(value)
        if not isinstance(name, str) or not isinstance(value, int | float):
            raise TypeError(f"log_metric({name!r}, {value!r:.60}) takes a name and a number")
        if math.isfinite(value):
            self.metrics.setdefault(name, []).append(float(value))

    def log_extra(self, column: str, values: Sequence[Any]) -> None:
        """Takes one entry a member, which the member's record in `rollouts/` shows. The entries of several calls with
        one column are joined in the order of the calls.

        Raises:
            TypeError: the column is not a text, or the values are not a list.
        """
        if hasattr(values, "tolist"):
            values = values.tolist()  # type: ignore[union-attr]
        if not isinstance(column, str) or isinstance(values, str) or not isinstance(values, Sequence):
            raise TypeError(f"log_extra({column!r}, {values!r:.60}) takes a column's name and a list")
        self.columns.setdefault(column, []).extend(_plain(value) for value in values)

    def arguments(self, state: TrainerState) -> dict[str, Any]:
        """Returns the trainer's arguments of a call that logs here."""
        return {"trainer_state": state, "log_metric": self.log_metric, "log_extra": self.log_extra}

    def add_to(
        self, metrics: dict[str, list[float]], columns: dict[str, list[Any]], reward: str, num_members: int
    ) -> None:
        """Adds this log to those of other rewards. A column whose name another reward uses too is preceded by the name
        of this one.

        Raises:
            RewardError: a column has another number of entries than the batch has members.

        Example:
            >>> columns = {"seen": ["y"]}
            >>> RewardLog(columns={"seen": ["x"]}).add_to({}, columns, "second", num_members=1)
            >>> columns
            {'seen': ['y'], 'second/seen': ['x']}
        """
        for name, numbers in self.metrics.items():
            metrics.setdefault(name, []).extend(numbers)
        for column, values in self.columns.items():
            if len(values) != num_members:
                raise RewardError(
                    f"reward {reward!r}: log_extra({column!r}, ...) got {len(values)} entries for {num_members}"
                    " members; log one entry a member",
                    reward=reward,
                )
            columns[f"{reward}/{column}" if column in columns else column] = values


def scalar(value: Any) -> Any:
    """Returns the number in an array or tensor without axes; anything else as it is."""
    return value.item() if hasattr(value, "item") and getattr(value, "ndim", None) == 0 else value


def _plain(value: Any) -> Any:
    """Returns an entry in JSON's types; anything else becomes its text, and a long text is cut off."""
    value = scalar(value)
    if value is None or isinstance(value, bool | int):
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else str(value)
    return str(value)[:_MOST_CHARACTERS]


@final
@dataclass(frozen=True)
class RewardEvent:
    """An event during scoring, named and counted.

    Args:
        name: `missing`, `timeout`, `error`, or a reward's own name for it.
        reward: name of the reward.
        prompt: an excerpt of the prompt, where one member is meant.
        member: its place in the batch, where one is meant (the first, where several are counted together).
        count: number of members.
        detail: an explanation, which is shown once.
        scored: whether these members have a value all the same, and stay in the reward's mean.

    Example:
        >>> RewardEvent("timeout", "judge", count=8).count
        8
    """

    name: str
    reward: str
    prompt: str | None = None
    member: int | None = None
    count: int = 1
    detail: str = ""
    scored: bool = False


@final
@dataclass(frozen=True)
class RewardTable:
    """Rewards by name, one entry a member, None where a reward is missing.

    Args:
        values: name -> `B` numbers or None.
        weights: name -> factor in the sum; 1 where unnamed, 0 for what is only logged.
        seconds: name -> wall time of the call.
        judges: names of rewards that are measured and never trained on; their weight is 0.
        maps: name -> `B` arrays, where a reward gives a value to every pixel (or decision) of a member; `values` then
            holds their means.
        bounds: name -> the lowest and the highest value that the reward can give; 0 and 1 where unnamed.
        fields: name -> field -> `B` entries from which the reward was computed; an entry is a number, or a list of
            numbers (one a decision).
        logged: name -> numbers that rewards logged by `log_metric`; their mean is what the batch shows.
        extras: column -> `B` entries that rewards logged by `log_extra`.
        contents: a digest of each completion; empty where it is not known.

    Raises:
        RewardError: rewards of different length, or a weight of something that is not a reward.

    Example:
        >>> table = RewardTable({"correct": [1.0, None], "brief": [0.5, 0.5]}, {"correct": 2.0, "brief": 1.0})
        >>> table.total()
        [2.5, None]
        >>> table.total(partial="sum")
        [2.5, 0.5]
    """

    values: Mapping[str, Sequence[float | None]]
    weights: Mapping[str, float] = field(default_factory=dict)
    events: Sequence[RewardEvent] = ()
    seconds: Mapping[str, float] = field(default_factory=dict)
    judges: frozenset[str] = frozenset()
    maps: Mapping[str, Sequence[Any]] = field(default_factory=dict)
    fields: Mapping[str, Mapping[str, Sequence[Any]]] = field(default_factory=dict)
    bounds: Mapping[str, tuple[float, float]] = field(default_factory=dict)
    logged: Mapping[str, Sequence[float]] = field(default_factory=dict)
    extras: Mapping[str, Sequence[Any]] = field(default_factory=dict)
    contents: Sequence[Content] = ()

    def __post_init__(self) -> None:
        lengths = {name: len(values) for name, values in self.values.items()}
        if len(set(lengths.values())) > 1:
            raise RewardError(f"rewards of one table must have one entry a member each, got lengths {lengths}")
        if unknown := sorted(set(self.weights) - set(self.values)):
            raise RewardError(
                f"weights name {unknown}, which are no rewards of this table; rewards: {sorted(self.values)}"
            )
        object.__setattr__(self, "values", {name: list(values) for name, values in self.values.items()})
        weights = {name: 0.0 if name in self.judges else float(self.weights.get(name, 1.0)) for name in self.values}
        object.__setattr__(self, "weights", weights)

    def __len__(self) -> int:
        return len(next(iter(self.values.values()), []))

    def total(
        self, partial: Literal["drop", "sum"] = "drop", groups: Sequence[Hashable] | None = None
    ) -> list[float | None]:
        """Computes the weighted sum `sum_j w_j R_j` for each member.

        Args:
            partial: the effect of a missing reward with a weight: `drop` gives its member None, unless the reward is
                missing for the whole group and so carries no information about its prompt; `sum` gives the sum of the
                others.
            groups: the group of each member; all are of one group if not given.

        Returns:
            `B` numbers; None for a member that cannot be scored, as where every reward with a weight is missing.

        Raises:
            RewardError: no reward has a weight, so that there is nothing to sum.
        """
        weights = {name: weight for name, weight in self.weights.items() if weight != 0}
        if not weights:
            raise RewardError(
                f"no reward has a weight other than 0, so there is no sum; rewards: {sorted(self.values)}; give one of"
                " them a weight"
            )
        columns = [self.values[name] for name in weights]
        given = [
            {name: value for name, value in zip(weights, row, strict=True) if value is not None}
            for row in zip(*columns, strict=True)
        ]
        groups = [0] * len(given) if groups is None else groups
        asked: dict[Hashable, set[str]] = {}
        for group, values in zip(groups, given, strict=True):
            asked.setdefault(group, set()).update(values)
        return [
            math.fsum(weights[name] * value for name, value in values.items())
            if values and (partial == "sum" or values.keys() == asked[group])
            else None
            for group, values in zip(groups, given, strict=True)
        ]

    def metrics(self) -> dict[str, float]:
        """Computes the metrics of each reward: mean, standard deviation over the batch, share missing, seconds, and the
        count of every event.

        Example:
            >>> RewardTable({"brief": [0.0, 1.0]}).metrics()
            {'rewards/brief/mean': 0.5, 'rewards/brief/std': 0.5, 'rewards/brief/missing': 0.0}
        """
        metrics: dict[str, float] = {}
        for name, values in self.values.items():
            present = [value for value in values if value is not None]
            if present:
                mean = math.fsum(present) / len(present)
                metrics[f"rewards/{name}/mean"] = mean
                metrics[f"rewards/{name}/std"] = math.sqrt(
                    math.fsum((value - mean) ** 2 for value in present) / len(present)
                )
            if values:
                metrics[f"rewards/{name}/missing"] = 1 - len(present) / len(values)
            if name in self.seconds:
                metrics[f"rewards/{name}/seconds"] = self.seconds[name]
        for event in self.events:
            if event.name != "missing":
                key = f"rewards/{event.reward}/num_{event.name}"
                metrics[key] = metrics.get(key, 0.0) + event.count
        return metrics | self.logged_means()

    def logged_means(self) -> dict[str, float]:
        """Returns the mean of the numbers that rewards logged, as `logged/NAME`.

        Example:
            >>> RewardTable({"brief": [0.0, 1.0]}, logged={"solved": [0.0, 1.0]}).logged_means()
            {'logged/solved': 0.5}
        """
        return {f"logged/{name}": math.fsum(values) / len(values) for name, values in self.logged.items() if values}

    def select(self, rows: Sequence[int]) -> RewardTable:
        """Returns the rewards of some members, in this order; events stay those of the whole table."""

        def pick(table: Mapping[str, Sequence[Any]]) -> dict[str, list[Any]]:
            return {name: [values[int(row)] for row in rows] for name, values in table.items()}

        return replace(
            self,
            values=pick(self.values),
            maps=pick(self.maps),
            extras=pick(self.extras),
            contents=[self.contents[int(row)] for row in rows] if self.contents else (),
            fields={name: pick(table) for name, table in self.fields.items()},
        )

    @staticmethod
    def concatenate(tables: Sequence[RewardTable]) -> RewardTable:
        """Joins several tables in order; seconds add up.

        Raises:
            RewardError: tables of different rewards or weights.

        Example:
            >>> RewardTable.concatenate([RewardTable({"a": [1.0]}), RewardTable({"a": [None]})]).values
            {'a': [1.0, None]}
        """
        first = tables[0]
        events: list[RewardEvent] = []
        seconds: dict[str, float] = {}
        logged: dict[str, list[float]] = {}
        num_members = 0
        for table in tables:
            if dict(table.weights) != dict(first.weights):
                raise RewardError(
                    f"tables of different rewards cannot be joined: {dict(first.weights)} and {dict(table.weights)}"
                )
            events += [
                event if event.member is None else replace(event, member=event.member + num_members)
                for event in table.events
            ]
            num_members += len(table)
            for name, spent in table.seconds.items():
                seconds[name] = seconds.get(name, 0.0) + spent
            for name, numbers in table.logged.items():
                logged.setdefault(name, []).extend(numbers)

        def joined(pick: Callable[[RewardTable], Mapping[str, Sequence[Any]]]) -> dict[str, list[Any]]:
            """Joins columns; one that a reward gave for some batches alone is empty for the others."""
            names = dict.fromkeys(name for table in tables for name in pick(table))
            return {
                name: [entry for table in tables for entry in pick(table).get(name, [None] * len(table))]
                for name in names
            }

        return replace(
            first,
            values=joined(lambda table: table.values),
            events=tuple(events),
            seconds=seconds,
            maps=joined(lambda table: table.maps),
            fields={name: joined(lambda table: table.fields.get(name, {})) for name in first.fields},  # noqa: B023
            logged=logged,
            extras=joined(lambda table: table.extras),
            contents=[content for table in tables for content in table.contents]
            if all(table.contents for table in tables)
            else (),
        )


# The check of a reward's return value: one finite number or None a member, or an error that names the value.

_ALLOWED = "allowed: a finite number, a bool, or None for a missing reward"


def as_number(value: Any) -> float | None:
    """Converts a value to a float, or to None for None; scalars of numpy and torch count as numbers.

    Raises:
        ValueError: anything else, NaN and infinity included.

    Example:
        >>> as_number(True), as_number(None), as_number(2)
        (1.0, None, 2.0)
        >>> as_number("2")
        Traceback (most recent call last):
        ...
        ValueError: '2' of type str
    """
    if value is None:
        return None
    if not isinstance(value, Real) and not isinstance(value := scalar(value), Real):
        raise ValueError(f"{excerpt(repr(value))} of type {type(value).__name__}")
    try:
        number = float(value)
    except OverflowError:
        raise ValueError("a number too large for a float") from None
    if not math.isfinite(number):
        raise ValueError(str(number))
    return number


def split_maps(reward: str, returned: Any) -> tuple[Any, list[Any] | None]:
    """Replaces every map in a reward's return value by its mean. Returns these values and the maps; None if there are
    no maps.

    A map is an array or tensor of two dimensions, one value a pixel.

    Raises:
        RewardError: maps for some members and not for others, of more than two dimensions, or with NaN or infinity;
            names the member.

    Example:
        >>> import numpy
        >>> split_maps("near", [numpy.array([[1.0, 3.0]])])[0]
        [2.0]
    """
    if getattr(returned, "ndim", 1) >= 3:
        returned = list(returned)
    if not isinstance(returned, Sequence) or not any(getattr(value, "ndim", 0) >= 2 for value in returned):
        return returned, None
    import numpy as np

    maps: list[Any] = []
    for member, value in enumerate(returned):
        if getattr(value, "ndim", 0) == 2:
            maps.append(np.asarray(value.detach().cpu() if hasattr(value, "detach") else value, dtype=np.float64))
        if len(maps) <= member or not np.isfinite(maps[-1]).all():
            shape = f"an array of shape {list(value.shape)}" if hasattr(value, "shape") else excerpt(repr(value))
            raise RewardError(
                f"reward {reward!r} gave maps, and {shape} for member {member}; write a map of finite numbers, [H, W],"
                " for every member, or a number for every one",
                reward=reward,
                member=member,
            )
    return [float(pixel_map.mean()) for pixel_map in maps], maps


def checked_values(reward: str, returned: Any, prompts: Sequence[Text]) -> tuple[list[float | None], list[RewardEvent]]:
    """Converts a reward's return value to numbers and events.

    Args:
        returned: what it returned: a sequence, an array or a tensor of one entry a member.
        prompts: the prompts, one a member.

    Returns:
        The numbers, and one event for all plain `None` together and one for each `Noted` entry.

    Raises:
        RewardError: no sequence, another length, or an entry that is not a number; names the reward, the prompt, the
            member and the value.
    """
    if hasattr(returned, "tolist"):
        returned = returned.tolist()
    if not isinstance(returned, Sequence) or isinstance(returned, str | bytes):
        message = f"reward {reward!r} returned {excerpt(repr(returned))} of type {type(returned).__name__}"
        raise RewardError(f"{message}; write a list with one entry a member", reward=reward)
    if len(returned) != len(prompts):
        message = f"reward {reward!r} returned {len(returned)} values for {len(prompts)} members"
        raise RewardError(f"{message}; write one entry a member, None where there is none", reward=reward)
    values: list[float | None] = []
    events: list[RewardEvent] = []
    silent: list[int] = []
    for member, member_value in enumerate(returned):
        try:
            values.append(as_number(member_value.value if isinstance(member_value, Noted) else member_value))
        except ValueError as error:
            prompt = excerpt(prompt_text(prompts[member]))
            message = f"reward {reward!r} gave {error} for member {member} (prompt: {prompt!r}); {_ALLOWED}"
            raise RewardError(message, reward=reward, prompt=prompt, member=member) from None
        if isinstance(member_value, Noted):
            events.append(
                RewardEvent(
                    member_value.event,
                    reward,
                    prompt=excerpt(prompt_text(prompts[member])),
                    member=member,
                    detail=member_value.detail,
                    scored=member_value.value is not None,
                )
            )
        elif member_value is None:
            silent.append(member)
    if silent:
        events.append(
            RewardEvent(
                "missing", reward, prompt=excerpt(prompt_text(prompts[silent[0]])), member=silent[0], count=len(silent)
            )
        )
    return values, events


# Data columns of a reward: the columns that it requires, and the columns that it is called with.

NOT_COLUMNS = frozenset({"prompts", "completions"}) | TRAINER_ARGUMENTS
"""Arguments of a reward that are not columns of the data."""

_NOT_OF_THE_DATA = {
    "completion_ids": "the token ids of completions, which a language model writes and this domain has not",
    "environments": (
        "TRL's environments, which are not passed here: an environment of domain.environment gives its own reward in"
        " step(), and completions are its whole conversation"
    ),
    "prompt": "a prompt, where a reward is given all of them; write prompts (or each = true for one member a call)",
    "completion": (
        "a completion, where a reward is given all of them; write completions (or each = true for one member a call)"
    ),
}
"""Arguments that cannot come from a data set, and what they are."""


def needed_columns(function: Callable[..., Any]) -> tuple[str, ...]:
    """Returns the columns that a reward requires: its `needs`, or its parameters without a default.

    Example:
        >>> def reward(prompts, completions, answer, difficulty=None, **columns): ...
        >>> needed_columns(reward)
        ('answer',)
    """
    declared = getattr(function, "needs", None)
    if declared is not None:
        return tuple(declared)
    named_kinds = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)
    parameters = inspect.signature(function).parameters.values()
    return tuple(
        parameter.name
        for parameter in parameters
        if parameter.kind in named_kinds and parameter.default is parameter.empty and parameter.name not in NOT_COLUMNS
    )


def arguments_for(function: Callable[..., Any], available: Mapping[str, Any]) -> dict[str, Any]:
    """Selects the arguments that the function takes: all of them where it has `**columns`, but never an argument that a
    partial already binds.

    Args:
        available: prompts, completions and data columns by name.

    Returns:
        what it is called with.

    Example:
        >>> arguments_for(lambda completions: completions, {"prompts": [], "completions": ["a"], "answer": [1]})
        {'completions': ['a']}
    """
    parameters = inspect.signature(function).parameters
    bound = function.keywords if isinstance(function, functools.partial) else {}
    available = {name: value for name, value in available.items() if name not in bound}
    if any(parameter.kind is parameter.VAR_KEYWORD for parameter in parameters.values()):
        return available
    return {name: value for name, value in available.items() if name in parameters}


def check_columns(reward: str, needs: Sequence[str], present: Sequence[str]) -> None:
    """Refuses a reward whose column is not in the data.

    Args:
        present: columns of the data.

    Raises:
        RewardError: naming the reward, the column and the columns that exist.

    Example:
        >>> check_columns("exact", ["answer"], ["question"])
        Traceback (most recent call last):
        ...
        groupwise.reward.base.RewardError: reward 'exact' needs the column 'answer', which the data lacks; columns: question
    """  # noqa: E501
    for column in needs:
        if column not in present and column in _NOT_OF_THE_DATA:
            raise RewardError(f"reward {reward!r} reads {column!r}, {_NOT_OF_THE_DATA[column]}", reward=reward)
        if column not in present:
            column_list = ", ".join(sorted(present)) or "none"
            raise RewardError(
                f"reward {reward!r} needs the column {column!r}, which the data lacks; columns: {column_list}",
                reward=reward,
            )


def column_advice(error: str, present: Collection[str]) -> str:
    """Returns the words that follow a `KeyError` of a name that is not a column of the data; empty for any other error.

    Args:
        error: the type and the text of the exception.
        present: what the reward could read.

    Example:
        >>> column_advice("KeyError: 'answer'", ["question", "prompts", "completions"])
        "; if 'answer' is a column, the data lacks it; columns: question"
        >>> column_advice("KeyError: 'question'", ["question"])
        ''
    """
    name = re.match(r"KeyError: '([^']+)'", error)
    if name is None or name[1] in present:
        return ""
    column_list = ", ".join(sorted(set(present) - NOT_COLUMNS)) or "none"
    return f"; if {name[1]!r} is a column, the data lacks it; columns: {column_list}"
