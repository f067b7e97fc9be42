"""What the controls of a run came to, each by its name: the one that does better than the run as well."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import mean, stdev
from typing import Any, Literal, final

from groupwise.runs import Run, is_number


@final
@dataclass(frozen=True)
class Control:
    """One control of a variant.

    Args:
        name: as the experiment calls it.
        after: its score at the end, run by run.
        leads: how much the run of the same seed exceeds it, run by run; below 0 where the control does better.
        interval: of that lead at 95 %, over the prompts of the evaluation; only of one run, as its summary holds it.
        goal: whether the score is to be large or small.

    Example:
        >>> Control("supervised", (0.5,), (0.2,), (0.1, 0.3)).verdict
        'better'
    """

    name: str
    after: tuple[float, ...]
    leads: tuple[float, ...]
    interval: tuple[float, float] | None
    goal: Literal["max", "min"] = "max"

    @property
    def score(self) -> float:
        """The mean over runs of its score."""
        return mean(self.after)

    @property
    def lead(self) -> float | None:
        """The mean over runs of how much the run exceeds it."""
        return mean(self.leads) if self.leads else None

    @property
    def deviation(self) -> float | None:
        """The standard deviation of that over runs; `None` of fewer than two."""
        return stdev(self.leads) if len(self.leads) > 1 else None

    @property
    def wins(self) -> bool:
        """Whether the control ends better than the run, by however little."""
        return self.lead is not None and (self.lead < 0 if self.goal == "max" else self.lead > 0)

    @property
    def verdict(self) -> Literal["better", "worse", "even"]:
        """What the interval says of the run beside this control; `even` where it holds 0 or is not known."""
        if self.interval is None or self.interval[0] <= 0 <= self.interval[1]:
            return "even"
        return "better" if (self.interval[0] > 0) == (self.goal == "max") else "worse"


def controls(runs: Sequence[Run], metric: str | None) -> tuple[Control, ...]:
    """Returns every control that runs of one variant were trained with.

    Args:
        runs: of the variant, with different seeds.
        metric: the metric that decides.

    Returns:
        one entry a control, in the order of the configuration; a control without a score is left out.

    Example:
        >>> controls([], None)
        ()
    """
    names = dict.fromkeys(name for run in runs for name in run.controls)
    listed = []
    for name in names:
        pairs = [(run, float(after)) for run in runs if is_number(after := run.controls.get(name, {}).get("after"))]
        leads = tuple(float(end) - after for run, after in pairs if is_number(end := (run.summary or {}).get("after")))
        if pairs:
            interval = _interval(runs[0].summary, name, metric) if len(runs) == 1 else None
            listed.append(Control(name, tuple(score for _, score in pairs), leads, interval, goal(pairs[0][0].config)))
    return tuple(listed)


def goal(config: Mapping[str, Any]) -> Literal["max", "min"]:
    """Returns whether more of the metric that decides is better, or less.

    Args:
        config: of a run.

    Example:
        >>> goal({"train": {"metric_goal": "min"}}), goal({})
        ('min', 'max')
    """
    train = config.get("train")
    return "min" if isinstance(train, Mapping) and train.get("metric_goal") == "min" else "max"


def _interval(summary: Mapping[str, Any] | None, name: str, metric: str | None) -> tuple[float, float] | None:
    """The interval that the summary holds of a lead: `controls.NAME.METRIC = [mean, low, high]`."""
    table: Any = summary
    for key in ("controls", name, metric):
        table = table.get(key) if isinstance(table, Mapping) else None
    if isinstance(table, list) and len(table) == 3 and all(is_number(value) for value in table):
        return float(table[1]), float(table[2])
    return None
