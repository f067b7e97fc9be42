"""The rewards of a batch: every reward by itself, and their weighted sum."""

from __future__ import annotations

import math
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal, final

from groupwise.reward.content import Content
from groupwise.reward.error import RewardError
from groupwise.reward.scoring.trainer_arguments import RewardLog


@final
@dataclass(frozen=True)
class RewardEvent:
    """An event during scoring, named and counted.

    Args:
        name: what: `missing`, `timeout`, `error`, or a reward's own name for it.
        reward: name of the reward.
        prompt: an excerpt of the prompt, where one member is meant.
        member: its place in the batch, where one is meant (the first, where several are counted together).
        count: number of members.
        detail: what a reader wants to see once.
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
        fields: name -> field -> `B` entries, what a reward says it was made of; an entry is a number, or a list of them
            (one a decision).
        logged: name -> numbers that rewards logged by `log_metric`; their mean is what the batch shows.
        extras: column -> `B` entries that rewards logged by `log_extra`.
        contents: what was scored, in short, one a member; empty where it is not known.

    Raises:
        RewardError: rewards of different length, or a weight of something that is no reward.

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
        unknown = sorted(set(self.weights) - set(self.values))
        if unknown:
            raise RewardError(
                f"weights name {unknown}, which are no rewards of this table; rewards: {sorted(self.values)}"
            )
        weights = {name: 0.0 if name in self.judges else float(self.weights.get(name, 1.0)) for name in self.values}
        object.__setattr__(self, "values", {name: list(values) for name, values in self.values.items()})
        object.__setattr__(self, "weights", weights)

    def __len__(self) -> int:
        return len(next(iter(self.values.values()), []))

    def total(
        self, partial: Literal["drop", "sum"] = "drop", groups: Sequence[Hashable] | None = None
    ) -> list[float | None]:
        """Computes the weighted sum `sum_j w_j R_j` for each member.

        Args:
            partial: the effect of a missing reward with a weight: `drop` gives its member None, unless the reward is
                missing for the whole group and so says nothing about its prompt; `sum` gives the sum of the others.
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
        groups = [0] * len(self) if groups is None else groups
        given = [
            {name: value for name in weights if (value := self.values[name][member]) is not None}
            for member in range(len(self))
        ]
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
        first_table = tables[0]
        values: dict[str, list[float | None]] = {name: [] for name in first_table.values}
        events: list[RewardEvent] = []
        seconds: dict[str, float] = {}
        for table in tables:
            if dict(table.weights) != dict(first_table.weights):
                raise RewardError(
                    f"tables of different rewards cannot be joined: {dict(first_table.weights)} and"
                    f" {dict(table.weights)}"
                )
            offset = len(next(iter(values.values()), []))
            events += [
                event if event.member is None else replace(event, member=event.member + offset)
                for event in table.events
            ]
            for name in values:
                values[name] += table.values[name]
            for name, spent in table.seconds.items():
                seconds[name] = seconds.get(name, 0.0) + spent
        maps = {name: [pixel_map for table in tables for pixel_map in table.maps[name]] for name in first_table.maps}
        fields = {
            name: {
                field_name: [value for table in tables for value in table.fields[name][field_name]]
                for field_name in reward_fields
            }
            for name, reward_fields in first_table.fields.items()
        }
        logged = {
            name: [value for table in tables for value in table.logged.get(name, ())]
            for name in dict.fromkeys(name for table in tables for name in table.logged)
        }
        # A column that a reward logged for some batches alone is empty for the others.
        extras = {
            column: [entry for table in tables for entry in table.extras.get(column, [None] * len(table))]
            for column in dict.fromkeys(column for table in tables for column in table.extras)
        }
        return RewardTable(
            values,
            first_table.weights,
            tuple(events),
            seconds,
            first_table.judges,
            maps,
            fields,
            first_table.bounds,
            logged,
            extras,
            [content for table in tables for content in table.contents]
            if all(table.contents for table in tables)
            else (),
        )


def joined_logs(logs: Mapping[str, RewardLog]) -> tuple[dict[str, list[float]], dict[str, list[Any]]]:
    """Returns the numbers and the columns of several rewards together. A column's name that a second reward uses too is
    preceded by that reward's.

    Args:
        logs: reward -> its log.

    Example:
        >>> logs = {"a": RewardLog({"n": [1.0]}, {"seen": ["x"]}), "b": RewardLog({"n": [2.0]}, {"seen": ["y"]})}
        >>> joined_logs(logs)
        ({'n': [1.0, 2.0]}, {'seen': ['x'], 'b/seen': ['y']})
    """
    metrics: dict[str, list[float]] = {}
    columns: dict[str, list[Any]] = {}
    for reward, log in logs.items():
        for name, values in log.metrics.items():
            metrics.setdefault(name, []).extend(values)
        for column, entries in log.columns.items():
            columns[f"{reward}/{column}" if column in columns else column] = entries
    return metrics, columns
