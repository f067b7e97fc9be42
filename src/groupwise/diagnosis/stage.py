"""The rows of one stage as a rule reads them: by metric, from the start or up to now."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, final

from groupwise.diagnosis.series import WINDOW, Series

Row = Mapping[str, Any]


@final
class Stage:
    """Collects rows; each metric can be asked for its first and its newest values.

    Args:
        name: of the stage; empty where rows name none.
        settings: the resolved configuration, as `config.json` holds it; empty where it is not known.

    Example:
        >>> stage = Stage("grpo")
        >>> for step in range(3):
        ...     stage.add({"step": step, "reward": step / 2})
        >>> stage.last("reward", 2).values, stage.last("reward", 4), stage.num_steps
        ([0.5, 1.0], None, 3)
    """

    def __init__(self, name: str = "", settings: Mapping[str, Any] | None = None) -> None:
        self.name = name
        self.settings = settings or {}
        self.num_steps = 0
        self._columns: dict[str, tuple[list[int], list[float]]] = {}

    def follow(self, before: Stage) -> None:
        """Takes over the newest held-out values of the stage before: where that one ended, this one begins, and it is not measured twice. Where it is all the
        same, since it is measured otherwise, its own values take their place.

        Args:
            before: the stage that has ended.
        """
        for metric, (steps, values) in before._columns.items():
            if metric.startswith("eval/"):
                self._columns[metric] = ([steps[-1]], [values[-1]])

    def add(self, row: Row) -> None:
        """Takes one row of `metrics.jsonl`. Values that are no finite numbers are absent; a row of an evaluation alone counts no step.

        Args:
            row: the newest.
        """
        step = row.get("step")
        step = int(step) if isinstance(step, int | float) and math.isfinite(step) else 0
        self.num_steps += any(name != "step" and not name.startswith("eval/") for name, value in row.items() if isinstance(value, int | float))
        for name, value in row.items():
            if isinstance(value, int | float) and math.isfinite(value):
                steps, values = self._columns.setdefault(name, ([], []))
                if name.startswith("eval/") and steps and steps[-1] == step:
                    steps.pop()
                    values.pop()
                steps.append(step)
                values.append(float(value))

    @property
    def metrics(self) -> list[str]:
        """Every metric seen."""
        return list(self._columns)

    @property
    def step(self) -> int:
        """The newest step; 0 before any."""
        return self._columns.get("step", ([0], []))[0][-1]

    def all(self, metric: str) -> Series:
        """Every value so far.

        Args:
            metric: its name.
        """
        steps, values = self._columns.get(metric, ([], []))
        return Series(metric, steps, values)

    def last(self, metric: str, count: int = WINDOW) -> Series | None:
        """The newest `count` values; `None` where there are fewer, or where they are old: the metric has stopped.

        Args:
            metric: its name.
            count: how many.
        """
        steps, values = self._columns.get(metric, ([], []))
        if len(values) < count or self.step - steps[-count] > 3 * count:
            return None
        return Series(metric, steps[-count:], values[-count:])

    def first(self, metric: str, count: int = WINDOW) -> Series | None:
        """The first `count` values; `None` where there are fewer.

        Args:
            metric: its name.
            count: how many.
        """
        steps, values = self._columns.get(metric, ([], []))
        return Series(metric, steps[:count], values[:count]) if len(values) >= count else None

    def before(self, metric: str, count: int = WINDOW, skip: int = WINDOW) -> Series | None:
        """The `count` values before the newest `skip`; `None` where there are fewer.

        Args:
            metric: its name.
            count: how many.
            skip: how many newer ones are left out.
        """
        steps, values = self._columns.get(metric, ([], []))
        end = len(values) - skip
        return Series(metric, steps[end - count : end], values[end - count : end]) if end >= count else None

    def ends(self, metric: str, count: int = WINDOW) -> tuple[Series, Series] | None:
        """The first and the newest `count` values where they do not overlap.

        Args:
            metric: its name.
            count: how many.
        """
        first, last = self.first(metric, count), self.last(metric, count)
        return (first, last) if first and last and len(self.all(metric)) >= 2 * count else None

    def setting(self, key: str) -> Any:
        """A value of the configuration, as this stage sets it or as the run does; `None` where it is not known.

        Args:
            key: dotted, for example `objective.trust.low`.

        Example:
            >>> settings = {"objective": {"trust": {"kind": "clip", "low": 0.2}}, "stages": [{"name": "b", "set": {"objective": {"trust": {"low": 0.1}}}}]}
            >>> Stage("a", settings).setting("objective.trust.low"), Stage("b", settings).setting("objective.trust.low")
            (0.2, 0.1)
        """
        stages = self.settings.get("stages")
        listed = [stage for stage in stages if isinstance(stage, Mapping)] if isinstance(stages, list | tuple) else []
        own = next((stage.get("set") for stage in listed if stage.get("name") == self.name), None)
        found, slot = _at(own, key), key.rpartition(".")[0]
        # Another kind has keys of its own, and those below it do not count.
        replaced = _at(own, f"{slot}.kind") not in (None, _at(self.settings, f"{slot}.kind"))
        return _at(self.settings, key) if found is None and not replaced else found

    def rewards(self, *, weighted: bool) -> list[str]:
        """Names of rewards that are trained on, or of those that are only watched (judges).

        Args:
            weighted: which.
        """
        names = [
            metric.removeprefix("rewards/").removesuffix("/weight") for metric in self._columns if metric.startswith("rewards/") and metric.endswith("/weight")
        ]
        return [name for name in names if (self._columns[f"rewards/{name}/weight"][1][-1] != 0) == weighted]


def _at(table: Any, key: str) -> Any:
    for name in key.split("."):
        table = table.get(name) if isinstance(table, Mapping) else None
    return table
