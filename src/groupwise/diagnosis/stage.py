"""The rows of one stage as a rule reads them: by metric, from the start or up to now."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, final

from groupwise.diagnosis.column import Column
from groupwise.diagnosis.series import WINDOW, Series
from groupwise.diagnosis.spread import Spread
from groupwise.diagnosis.windows import Windows

Row = Mapping[str, Any]

PLAIN_SUPERVISED = "loss_sup / lambda_sup"
"""The supervised loss without its coefficient, which a schedule may change; of the steps that have both."""

_EVALUATED = "eval/"
_MOST_EVALUATED = 128
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
        self._takers: dict[str, Callable[[int, float], None]] = {}
        self.settings = settings or {}
        self.num_steps = 0
        self._columns: dict[str, Column] = {}
        self._evaluated: dict[str, Spread] = {}
        self._kl = Spread("kl", _MOST_KL)
        self.windows = Windows("reward")
        """The reward window by window."""

    def follow(self, before: Stage) -> None:
        """Takes over the newest evaluations of the stage before: where that one ended, this one begins, and it is not
        measured twice. Where it is all the same, since it is measured otherwise, its own values take their place.

        Args:
            before: the stage that has ended.
        """
        for metric, seen in before._evaluated.items():
            self._hold_out(metric, *seen.newest)

    def add(self, row: Row) -> None:
        """Takes one row of `metrics.jsonl`. Values that are no finite numbers are absent; a row of an evaluation alone
        counts no step.

        Args:
            row: the newest.
        """
        step = row.get("step")
        step = int(step) if isinstance(step, int | float) and math.isfinite(step) else 0
        is_step = False
        for name, value in row.items():
            if not isinstance(value, int | float):
                continue
            take = self._takers.get(name) or self._taker(name)
            is_step = is_step or not (name == "step" or name.startswith(_EVALUATED))
            if take is not _leave and math.isfinite(value):
                take(step, float(value))
        self.num_steps += is_step
        loss, coefficient = _finite(row.get("loss_sup")), _finite(row.get("lambda_sup"))
        if loss is not None and coefficient:
            self._column(PLAIN_SUPERVISED).add(step, loss / coefficient)

    def _taker(self, metric: str) -> Callable[[int, float], None]:
        """Returns what takes the values of a metric, made at its first value."""
        if metric != "step" and not self._reads(metric):
            take = _leave
        elif metric.startswith(_EVALUATED):
            take = partial(self._hold_out, metric)
        else:
            columns = [self._column(metric).add]
            columns += [self._kl.add] if metric == "kl" else []
            columns += [self.windows.add] if metric == "reward" else []
            take = columns[0] if len(columns) == 1 else partial(_all, columns)
        self._takers[metric] = take
        return take

    def _column(self, metric: str) -> Column:
        return self._columns.setdefault(metric, Column(metric))

    def _hold_out(self, name: str, step: int, value: float) -> None:
        seen = self._evaluated.setdefault(name, Spread(name, _MOST_EVALUATED))
        if seen.count and seen.newest[0] == step:
            seen.replace_newest(value)
        else:
            seen.add(step, value)

    @property
    def evaluated(self) -> list[Series]:
        """Returns every metric that evaluations measured, from the first evaluation to the newest; of more than some
        hundred, spread evenly.
        """
        return [seen.series for seen in self._evaluated.values()]

    @property
    def step(self) -> int:
        """Returns the newest step; 0 before any row."""
        return self._columns["step"].newest[0] if "step" in self._columns else 0

    def count(self, metric: str) -> int:
        """Counts the values of a metric so far."""
        return self._columns[metric].count if metric in self._columns else 0

    def last(self, metric: str, count: int = WINDOW) -> Series | None:
        """Returns the newest `count` values; `None` where there are fewer, or where they are old: the metric has
        stopped.

        Args:
            metric: its name.
            count: how many.
        """
        newest = self._columns[metric].last(count) if metric in self._columns else None
        return None if newest is None or self.step - newest.steps[0] > 3 * count else newest

    def first(self, metric: str, count: int = WINDOW) -> Series | None:
        """Returns the first `count` values; `None` where there are fewer.

        Args:
            metric: its name.
            count: how many.
        """
        return self._columns[metric].first(count) if metric in self._columns else None

    def before(self, metric: str, count: int = WINDOW, skip: int = WINDOW) -> Series | None:
        """Returns the `count` values before the newest `skip`; `None` where there are fewer.

        Args:
            metric: its name.
            count: how many.
            skip: how many newer ones are left out.
        """
        return self._columns[metric].last(count, skip) if metric in self._columns else None

    def kl_before(self, count: int, skip: int) -> Series | None:
        """Returns the KL further back than any other metric is looked at: `count` values before the newest `skip`,
        spread evenly where there are thousands.

        Args:
            count: how many.
            skip: how many newer ones are left out.
        """
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
        stages = self.settings.get("stages")
        tables = [stage for stage in stages if isinstance(stage, Mapping)] if isinstance(stages, list | tuple) else []
        changes = next((table.get("set") for table in tables if table.get("name") == self.name), None)
        value, slot = _in_set(changes, key), key.rpartition(".")[0]
        # Another kind has keys of its own, and those below it do not count.
        replaced = _in_set(changes, f"{slot}.kind") not in (None, _at(self.settings, f"{slot}.kind"))
        return _at(self.settings, key) if value is None and not replaced else value

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

    def evaluated_judges(self) -> list[Series]:
        """Returns the evaluated metrics of rewards whose role is `judge`, each with at least two values; the policy is
        never trained on them.
        """
        rewards = self.setting("domain.rewards")
        judges = (
            [name for name, reward in rewards.items() if isinstance(reward, Mapping) and reward.get("role") == "judge"]
            if isinstance(rewards, Mapping)
            else []
        )
        return [seen for seen in self.evaluated if seen.metric.rpartition("/")[2] in judges and len(seen) > 1]


def _leave(step: int, value: float) -> None:
    """Takes nothing: no rule reads the metric."""


def _all(takers: Sequence[Callable[[int, float], None]], step: int, value: float) -> None:
    for take in takers:
        take(step, value)


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
