"""The rows of one stage as a rule reads them: by metric, from the start or up to now."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import Any, final

from groupwise.runs.folder import with_slots_at_top
from groupwise_look.diagnosis.series import WINDOW, Column, Series, Windows

Row = Mapping[str, Any]
PLAIN_SUPERVISED = "loss_sup / lambda_sup"
"""The supervised loss without its coefficient, which a schedule may change, for the steps that have both."""

_EVALUATED = "eval/"


@final
class Stage:
    """Collects rows; each metric can be asked for its first and its newest values.

    Args:
        name: the name of the stage; empty where rows name none.
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
        self._reads = lru_cache(None)(reads or (lambda metric: True))
        self.settings = with_slots_at_top(settings or {})
        self.num_steps = 0
        self.earlier: frozenset[str] = frozenset()
        """The metrics of the stages before."""
        self.windows = Windows("reward")
        """The reward, window by window."""
        self._columns: dict[str, Column] = {}
        self._evaluated: dict[str, Column] = {}

    def follow(self, before: Stage) -> None:
        """Takes over the newest evaluations of the previous stage. This stage begins where that one ended, so the
        policy is not measured again; if it is, because it is measured differently, the stage's own values replace them.

        Args:
            before: the stage that has ended.
        """
        self.earlier = before.earlier.union(before._columns)
        for metric, seen in before._evaluated.items():
            self._evaluated.setdefault(metric, Column(metric)).set_at(*seen.newest)

    def add(self, row: Row) -> None:
        """Takes one row of `metrics.jsonl`. Values that are not finite numbers are absent; a row of an evaluation alone
        counts no step.

        Args:
            row: the newest.
        """
        numbers = {name: value for name, value in row.items() if isinstance(value, int | float)}
        self.num_steps += any(name != "step" and not name.startswith(_EVALUATED) for name in numbers)
        values = {name: float(value) for name, value in numbers.items() if math.isfinite(value)}
        step = int(values.get("step", 0))
        for metric, value in values.items():
            if metric.startswith(_EVALUATED) and self._reads(metric):
                self._evaluated.setdefault(metric, Column(metric)).set_at(step, value)
            elif metric == "step" or self._reads(metric):
                self._column(metric).add(step, value)
        if "reward" in values:
            self.windows.add(step, values["reward"])
        if "loss_sup" in values and values.get("lambda_sup"):
            self._column(PLAIN_SUPERVISED).add(step, values["loss_sup"] / values["lambda_sup"])

    def _column(self, metric: str) -> Column:
        return self._columns.setdefault(metric, Column(metric))

    @property
    def evaluated(self) -> list[Series]:
        """Returns every metric that evaluations measured, from the first evaluation to the newest."""
        return [seen.series for seen in self._evaluated.values()]

    @property
    def step(self) -> int:
        """Returns the newest step; 0 before any row."""
        return self._columns["step"].newest[0] if "step" in self._columns else 0

    def count(self, metric: str) -> int:
        """Counts the values of a metric so far."""
        return len(self._columns.get(metric, ()))

    def last(self, metric: str, count: int = WINDOW) -> Series | None:
        """Returns the newest `count` values; `None` where there are fewer, or where they are old: the metric has
        stopped.
        """
        newest = self.before(metric, count, 0)
        return None if newest is None or self.step - newest.steps[0] > 3 * count else newest

    def first(self, metric: str, count: int = WINDOW) -> Series | None:
        """Returns the first `count` values; `None` where there are fewer."""
        return self._columns[metric].first(count) if metric in self._columns else None

    def before(self, metric: str, count: int = WINDOW, skip: int = WINDOW) -> Series | None:
        """Returns the `count` values before the newest `skip`; `None` where there are fewer."""
        return self._columns[metric].last(count, skip) if metric in self._columns else None

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
            key: dotted, for example `trust.low`.

        Example:
            >>> settings = {
            ...     "trust": {"kind": "clip", "low": 0.2},
            ...     "stages": [{"name": "b", "set": {"trust": {"low": 0.1}}}],
            ... }
            >>> Stage("a", settings).setting("trust.low"), Stage("b", settings).setting("trust.low")
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


def _in_set(changes: Any, key: str) -> Any:
    """Returns the value of a key in a `set`, which has slots at its top, and in records of 0.1 below `objective`."""
    value = _at(changes, key)
    return _at(changes, f"objective.{key}") if value is None else value


def _at(table: Any, key: str) -> Any:
    for name in key.split("."):
        table = table.get(name) if isinstance(table, Mapping) else None
    return table
