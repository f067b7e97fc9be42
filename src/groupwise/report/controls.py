"""Scores of the controls that were trained beside a run, whether they do worse or better than the run."""

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
        name: the control's name in the experiment.
        after: its score at the end, run by run.
        leads: score of the run of the same seed minus score of the control, run by run.
        interval: 95 % interval of that lead over the prompts of the evaluation, read from the summary of a single run.
        goal: `max` where a large score is good, `min` where a small one is.

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
        """The control's score, as a mean over runs."""
        return mean(self.after)

    @property
    def lead(self) -> float | None:
        """The mean over runs of `leads`; `None` without any."""
        return mean(self.leads) if self.leads else None

    @property
    def deviation(self) -> float | None:
        """The standard deviation of `leads` over runs; `None` where there are fewer than two."""
        return stdev(self.leads) if len(self.leads) > 1 else None

    @property
    def wins(self) -> bool:
        """True where the control ends better than the run, by however little."""
        return self.lead is not None and (self.lead < 0 if self.goal == "max" else self.lead > 0)

    @property
    def verdict(self) -> Literal["better", "worse", "even"]:
        """The verdict of the interval on the run beside this control: `even` where it contains 0 or is missing."""
        if self.interval is None or self.interval[0] <= 0 <= self.interval[1]:
            return "even"
        return "better" if (self.interval[0] > 0) == (self.goal == "max") else "worse"


def controls(runs: Sequence[Run], metric: str | None) -> tuple[Control, ...]:
    """Returns every control that runs of one variant were trained with.

    Args:
        runs: the variant's runs, with different seeds.
        metric: name of the metric that decides, `MODE/REWARD`.

    Returns:
        one record a control, in the order of the configuration; a control without a score is left out.

    Example:
        >>> controls([], None)
        ()
    """
    names = dict.fromkeys(name for run in runs for name in run.controls)
    scored_controls = []
    for name in names:
        pairs = [(run, float(after)) for run in runs if is_number(after := run.controls.get(name, {}).get("after"))]
        leads = tuple(
            float(run_score) - after for run, after in pairs if is_number(run_score := (run.summary or {}).get("after"))
        )
        if pairs:
            interval = _interval(runs[0].summary, name, metric) if len(runs) == 1 else None
            scored_controls.append(
                Control(name, tuple(score for _, score in pairs), leads, interval, goal(pairs[0][0].config))
            )
    return tuple(scored_controls)


def goal(config: Mapping[str, Any]) -> Literal["max", "min"]:
    """Returns `max` or `min`: the direction in which the metric that decides improves.

    Args:
        config: configuration of a run, as JSON read it.

    Example:
        >>> goal({"train": {"metric_goal": "min"}}), goal({})
        ('min', 'max')
    """
    train = config.get("train")
    return "min" if isinstance(train, Mapping) and train.get("metric_goal") == "min" else "max"


def _interval(summary: Mapping[str, Any] | None, name: str, metric: str | None) -> tuple[float, float] | None:
    """Returns the ends of a lead's interval, which a summary holds as `controls.NAME.METRIC = [mean, low, high]`."""
    table: Any = summary
    for key in ("controls", name, metric):
        table = table.get(key) if isinstance(table, Mapping) else None
    if isinstance(table, list) and len(table) == 3 and all(is_number(value) for value in table):
        return float(table[1]), float(table[2])
    return None
