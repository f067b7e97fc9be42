"""The rows of one stage as a rule reads them: by metric, from the start or up to now."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, final

from groupwise_look.diagnosis.series import WINDOW, Column, Series, Spread, Windows

Row = Mapping[str, Any]
Taker = Callable[[Sequence[int], Sequence[float]], None]

PLAIN_SUPERVISED = "loss_sup / lambda_sup"
"""The supervised loss without its coefficient, which a schedule may change; of the steps that have both."""

_EVALUATED = "eval/"
_STEP_AND_STAGE = frozenset({"step", "stage"})
_NUMBERS = frozenset({float, int, bool})
_MOST_EVALUATED = 128
_MOST_PENDING = 256
"""Rows that wait to be sorted by metric: a column at a time takes a quarter of the time of a value at a time."""
_MOST_KL = 4096
"""Beyond so many steps the KL's last third begins within a thousandth of where it does."""


@final
class Stage:
    """Collects rows; each metric can be asked for its first and its newest values. It takes no more memory for a
    million steps than for some thousand.

    Args:
        name: of the stage; empty where rows name none.
        settings: the resolved configuration, as `config.json` holds it; empty where it is not known.
        reads: returns whether any rule reads a metric; metrics that none reads are not collected. Unset collects all.

    Example:
        >>> stage = Stage("grpo")
        >>> for step in range(3):
        ...     stage.add({"step": step, "reward": step / 2})
        >>> stage.last("reward", 2).values, stage.last("reward", 4), stage.num_steps
        ([0.5, 1.0], None, 3)
    """

    def __init__(
        self,
        name: str = "",
        settings: Mapping[str, Any] | None = None,
        reads: Callable[[str], bool] | None = None,
    ) -> None:
        self.name = name
        self._reads = reads or (lambda metric: True)
        self._takers: dict[str, Taker | None] = {}
        self._pending: list[Row] = []
        self.settings = settings or {}
        self.num_steps = 0
        self.earlier: frozenset[str] = frozenset()
        """The metrics of the stages before."""
        self._columns: dict[str, Column] = {}
        self._evaluated: dict[str, Spread] = {}
        self._kl = Spread("kl", _MOST_KL)
        self._windows = Windows("reward")

    def follow(self, before: Stage) -> None:
        """Takes over the newest evaluations of the stage before: where that one ended, this one begins, and it is not
        measured twice. Where it is all the same, since it is measured otherwise, its own values take their place.

        Args:
            before: the stage that has ended.
        """
        before._settle()
        self.earlier = before.earlier.union(before._columns)
        for metric, seen in before._evaluated.items():
            step, value = seen.newest
            self._hold_out(metric, [step], [value])

    def add(self, row: Row) -> None:
        """Takes one row of `metrics.jsonl`. Values that are no finite numbers are absent; a row of an evaluation alone
        counts no step.

        Args:
            row: the newest; it is kept for a while and may not be changed afterwards.
        """
        self.num_steps += any(
            isinstance(value, int | float) and name != "step" and not name.startswith(_EVALUATED)
            for name, value in row.items()
        )
        self._pending.append(row)
        if len(self._pending) >= _MOST_PENDING:
            self._settle()

    def _settle(self) -> None:
        """Sorts the pending rows by metric. Whatever reads the stage calls it first."""
        if not self._pending:
            return
        rows, self._pending = self._pending, []
        self._meet(rows)
        steps = [int(step) if (step := _finite(row.get("step"))) is not None else 0 for row in rows]
        for metric, take in self._takers.items():
            if take is not None:
                take(*_finite_values(metric, rows, steps))
        if "loss_sup" in self._takers and "lambda_sup" in self._takers:
            for step, row in zip(steps, rows, strict=True):
                loss, coefficient = _finite(row.get("loss_sup")), _finite(row.get("lambda_sup"))
                if loss is not None and coefficient:
                    self._column(PLAIN_SUPERVISED).add([step], [loss / coefficient])

    def _meet(self, rows: Sequence[Row]) -> None:
        """Makes what takes the values of each metric, at its first number."""
        known = _STEP_AND_STAGE.union(self._takers)
        for row in rows:
            if known.issuperset(row):
                continue
            for metric, value in row.items():
                if metric not in self._takers and isinstance(value, int | float):
                    self._takers[metric] = self._taker(metric)
            known = _STEP_AND_STAGE.union(self._takers)

    def _taker(self, metric: str) -> Taker | None:
        """Returns what takes the values of a metric; `None` where no rule reads it."""
        if metric != "step" and not self._reads(metric):
            return None
        if metric.startswith(_EVALUATED):
            return partial(self._hold_out, metric)
        takers: list[Taker] = [self._column(metric).add]
        takers += [partial(_each, self._kl.add)] if metric == "kl" else []
        takers += [partial(_each, self._windows.add)] if metric == "reward" else []
        return takers[0] if len(takers) == 1 else partial(_all, takers)

    def _column(self, metric: str) -> Column:
        return self._columns.setdefault(metric, Column(metric))

    def _hold_out(self, name: str, steps: Sequence[int], values: Sequence[float]) -> None:
        for step, value in zip(steps, values, strict=True):
            seen = self._evaluated.setdefault(name, Spread(name, _MOST_EVALUATED))
            if seen.count and seen.newest[0] == step:
                seen.replace_newest(value)
            else:
                seen.add(step, value)

    @property
    def windows(self) -> Windows:
        """Returns the reward window by window."""
        self._settle()
        return self._windows

    @property
    def evaluated(self) -> list[Series]:
        """Returns every metric that evaluations measured, from the first evaluation to the newest; of more than some
        hundred, spread evenly.
        """
        self._settle()
        return [seen.series for seen in self._evaluated.values()]

    @property
    def step(self) -> int:
        """Returns the newest step; 0 before any row."""
        self._settle()
        return self._columns["step"].newest[0] if "step" in self._columns else 0

    def count(self, metric: str) -> int:
        """Counts the values of a metric so far."""
        self._settle()
        return self._columns[metric].count if metric in self._columns else 0

    def last(self, metric: str, count: int = WINDOW) -> Series | None:
        """Returns the newest `count` values; `None` where there are fewer, or where they are old: the metric has
        stopped.

        Args:
            metric: its name.
            count: how many.
        """
        self._settle()
        newest = self._columns[metric].last(count) if metric in self._columns else None
        return None if newest is None or self.step - newest.steps[0] > 3 * count else newest

    def first(self, metric: str, count: int = WINDOW) -> Series | None:
        """Returns the first `count` values; `None` where there are fewer.

        Args:
            metric: its name.
            count: how many.
        """
        self._settle()
        return self._columns[metric].first(count) if metric in self._columns else None

    def before(self, metric: str, count: int = WINDOW, skip: int = WINDOW) -> Series | None:
        """Returns the `count` values before the newest `skip`; `None` where there are fewer.

        Args:
            metric: its name.
            count: how many.
            skip: how many newer ones are left out.
        """
        self._settle()
        return self._columns[metric].last(count, skip) if metric in self._columns else None

    def kl_before(self, count: int, skip: int) -> Series | None:
        """Returns the KL further back than any other metric is looked at: `count` values before the newest `skip`,
        spread evenly where there are thousands.

        Args:
            count: how many.
            skip: how many newer ones are left out.
        """
        self._settle()
        return self._kl.before(count, skip)

    def ends(self, metric: str, count: int = WINDOW) -> tuple[Series, Series] | None:
        """Returns the first and the newest `count` values where they do not overlap.

        Args:
            metric: its name.
            count: how many.
        """
        start, last = self.first(metric, count), self.last(metric, count)
        return (start, last) if start and last and self.count(metric) >= 2 * count else None

    def setting(self, key: str) -> Any:
        """Returns a value of the configuration, as this stage sets it or as the run does; `None` where it is not known.

        Args:
            key: dotted, for example `objective.trust.low`.

        Example:
            >>> settings = {
            ...     "objective": {"trust": {"kind": "clip", "low": 0.2}},
            ...     "stages": [{"name": "b", "set": {"trust": {"low": 0.1}}}],
            ... }
            >>> Stage("a", settings).setting("objective.trust.low"), Stage("b", settings).setting("objective.trust.low")
            (0.2, 0.1)
        """
        changes = self._table().get("set")
        value, slot = _in_set(changes, key), key.rpartition(".")[0]
        # Another kind has keys of its own, and those below it do not count.
        replaced = _in_set(changes, f"{slot}.kind") not in (None, _at(self.settings, f"{slot}.kind"))
        return _at(self.settings, key) if value is None and not replaced else value

    @property
    def planned_steps(self) -> int | None:
        """Returns the number of steps that the configuration gives to the stage; `None` where it is not known."""
        count = self._table().get("num_steps", self.setting("train.num_steps"))
        return count if isinstance(count, int) else None

    def _table(self) -> Mapping[str, Any]:
        """Returns the stage's table in `stages`; empty where there is none."""
        stages = self.settings.get("stages")
        tables = [stage for stage in stages if isinstance(stage, Mapping)] if isinstance(stages, list | tuple) else []
        return next((table for table in tables if table.get("name") == self.name), {})

    def rewards(self, *, weighted: bool) -> list[str]:
        """Lists the names of rewards that are trained on, or of those that are only watched (judges).

        Args:
            weighted: true for the rewards that are trained on.
        """
        self._settle()
        names = [
            metric.removeprefix("rewards/").removesuffix("/weight")
            for metric in self._columns
            if metric.startswith("rewards/") and metric.endswith("/weight")
        ]
        return [name for name in names if (self._columns[f"rewards/{name}/weight"].newest[1] != 0) == weighted]

    @property
    def goal(self) -> Series | None:
        """Returns the evaluated metric that the run is judged by (`train.metric`, the first where it is unset); `None`
        where it has not been measured.
        """
        name = self.setting("train.metric")
        return next((seen for seen in self.evaluated if name is None or seen.metric == f"{_EVALUATED}{name}"), None)

    def evaluated_rewards(self) -> list[Series]:
        """Returns the evaluated rewards, each with at least two values."""
        return [seen for seen in self.evaluated if seen.metric.endswith("/reward") and len(seen) > 1]

    def evaluated_judges(self) -> list[Series]:
        """Returns the evaluated metrics that the policy is never trained on and that should rise, each with at least
        two values: those of rewards whose role is `judge`, and the one that the run is judged by, unless it is a reward
        or should fall.
        """
        rewards = self.setting("domain.rewards")
        rewards = rewards if isinstance(rewards, Mapping) else {}
        judges = [
            name for name, reward in rewards.items() if isinstance(reward, Mapping) and reward.get("role") == "judge"
        ]
        seen = [seen for seen in self.evaluated if seen.metric.rpartition("/")[2] in judges]
        goal = None if self.setting("train.metric_goal") == "min" else self.goal
        if goal is not None and rewards and goal.metric.rpartition("/")[2] not in {*rewards, "reward"}:
            seen.append(goal)
        return [series for series in seen if len(series) > 1]


def _all(takers: Sequence[Taker], steps: Sequence[int], values: Sequence[float]) -> None:
    for take in takers:
        take(steps, values)


def _each(take: Callable[[int, float], None], steps: Sequence[int], values: Sequence[float]) -> None:
    for step, value in zip(steps, values, strict=True):
        take(step, value)


def _finite_values(metric: str, rows: Sequence[Row], steps: Sequence[int]) -> tuple[Sequence[int], Sequence[float]]:
    """Returns the finite values of a metric, with their steps."""
    values: list[Any] = [row.get(metric) for row in rows]
    if None in values:  # An evaluation is in few rows.
        steps = [step for step, value in zip(steps, values, strict=True) if value is not None]
        values = [value for value in values if value is not None]
    if _NUMBERS.issuperset(map(type, values)) and all(map(math.isfinite, values)):
        return steps, list(map(float, values))
    pairs = [(step, found) for step, value in zip(steps, values, strict=True) if (found := _finite(value)) is not None]
    return [step for step, _ in pairs], [value for _, value in pairs]


def _finite(value: Any) -> float | None:
    return float(value) if isinstance(value, int | float) and math.isfinite(value) else None


def _in_set(changes: Any, key: str) -> Any:
    """Returns the value of a key in a `set`, which has slots at its top, and in records of 0.1 below `objective`."""
    value = _at(changes, key.removeprefix("objective."))
    return _at(changes, key) if value is None else value


def _at(table: Any, key: str) -> Any:
    for name in key.split("."):
        table = table.get(name) if isinstance(table, Mapping) else None
    return table
