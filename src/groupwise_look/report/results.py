"""Results of each variant: the scores of its evaluations before and after training, over its seeds."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from statistics import mean, stdev
from typing import Any, Literal, final

from groupwise.config import flatten
from groupwise.runs import Run, is_number

# Scores of the controls that were trained alongside a run, whether they do worse or better than the run.


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
        """The verdict of the interval on the run compared with this control: `even` where it contains 0 or is
        missing.
        """
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


# Variants: runs of one configuration that differ by their seed, and the keys in which configurations differ.

_LEADING = ("name", "method")
"""Keys that come first in the name of a variant, if variants differ in them."""
_IGNORED_KEYS = ("seed", "description", "track.", "controls.", "comparison.", "train.num_threads")
"""Keys in which two runs of one variant may differ."""

MOST_SETTINGS = 3
"""The largest number of settings in the name of a variant."""


@final
@dataclass(frozen=True)
class Variant:
    """Runs of one configuration.

    Args:
        name: settings that distinguish this variant from the others.
        runs: runs of different seeds, in the order of their seeds.

    Example:
        >>> from pathlib import Path
        >>> Variant("grpo", (Run(Path("a"), {"seed": 3}, [], None, [], "unfinished", []),)).seeds
        '3'
    """

    name: str
    runs: tuple[Run, ...]

    @property
    def seeds(self) -> str:
        """The seeds as a text."""
        return ", ".join("?" if run.seed is None else str(run.seed) for run in self.runs)

    @cached_property
    def metrics(self) -> tuple[str, ...]:
        """Names of the metrics that any of the runs has, in order."""
        return tuple(dict.fromkeys(name for run in self.runs for name in run.metrics))

    @property
    def metric(self) -> str | None:
        """The metric of the evaluations that decides: as a summary names it, or of a run that has not ended the one
        that its configuration names, or the first that it measured.
        """
        named = [str(run.summary["metric"]) for run in self.runs if run.summary and run.summary.get("metric")]
        return next((name for name in [*named, *map(_metric_so_far, self.runs)] if name), None)

    def series(self, name: str) -> list[tuple[list[int], list[float]]]:
        """Returns steps and values of the metric `name`, run by run; runs without it are left out."""
        return [pair for run in self.runs if (pair := run.series(name))[0]]


def _metric_so_far(run: Run) -> str | None:
    measured = [name.removeprefix("eval/") for name in run.metrics if name.startswith("eval/")]
    train = run.config.get("train")
    configured = train.get("metric") if isinstance(train, Mapping) else None
    if run.summary is not None or not measured:
        return None
    return configured if configured in measured else measured[0]


def group_runs(runs: Sequence[Run]) -> list[Variant]:
    """Groups runs into variants, in the order of their first runs; the runs of a variant are sorted by seed.

    A variant of a comparison stays one variant. A run whose configuration is lost is a variant by itself.

    Returns:
        variants with distinct names.

    Example:
        >>> from pathlib import Path
        >>> def run(folder, seed, beta):
        ...     return Run(
        ...         Path(folder),
        ...         {"name": "a", "seed": seed, "divergence": {"beta": beta}},
        ...         [],
        ...         None,
        ...         [],
        ...         "unfinished",
        ...         [],
        ...     )
        >>> [
        ...     (variant.name, variant.seeds)
        ...     for variant in group_runs([run("x", 1, 0.0), run("y", 0, 0.0), run("z", 0, 0.1)])
        ... ]
        [('divergence.beta=0.0', '0, 1'), ('divergence.beta=0.1', '0')]
    """
    groups: dict[str, list[Run]] = {}
    for run in runs:
        settings = _settings(run)
        key = json.dumps(settings, sort_keys=True, default=str) if settings else str(run.path)
        groups.setdefault(str(_comparison_folder(run) or key), []).append(run)
    run_groups = [tuple(sorted(group, key=lambda run: (run.seed is None, run.seed or 0))) for group in groups.values()]
    return [Variant(name, group) for name, group in zip(_names(run_groups), run_groups, strict=True)]


def differences(variants: Sequence[Variant]) -> dict[str, list[Any]]:
    """Returns the dotted keys in which configurations differ, with one value a variant; `None` where a variant lacks
    the key.

    Returns:
        key -> values, `name` and `method` first, then as the first configuration orders them.

    Example:
        >>> differences([])
        {}
    """
    return _differing([_settings(variant.runs[0]) for variant in variants])


def _settings(run: Run) -> dict[str, Any]:
    settings = flatten(run.config).items()
    return {key: value for key, value in settings if not key.startswith(_IGNORED_KEYS) and value != {}}


def _differing(tables: Sequence[Mapping[str, Any]]) -> dict[str, list[Any]]:
    keys = sorted(dict.fromkeys(key for table in tables for key in table), key=lambda key: key not in _LEADING)
    rows = {key: [table.get(key) for table in tables] for key in keys}
    return {key: values for key, values in rows.items() if any(value != values[0] for value in values)}


def _names(groups: Sequence[Sequence[Run]]) -> list[str]:
    if len(groups) == 1:
        return [groups[0][0].name]
    names = [folder.name if (folder := _comparison_folder(group[0])) else "" for group in groups]
    if not all(names) or len(set(names)) < len(names):
        tables = [_settings(group[0]) for group in groups]
        names = [_distinguishing_name(index, tables) or groups[index][0].name for index in range(len(groups))]
    return [name if names.count(name) == 1 else f"{name} ({groups[index][0].path})" for index, name in enumerate(names)]


def _comparison_folder(run: Run) -> Path | None:
    """Returns the folder of the comparison's variant that contains a run, whose name is the variant's, or `None`."""
    folder = run.path.resolve().parent
    return folder if (folder.parent / "comparison.json").is_file() else None


def _distinguishing_name(index: int, tables: Sequence[Mapping[str, Any]]) -> str:
    """Returns the settings that distinguish a configuration from the others, in the form of a command line: its method,
    and the settings in which it differs from others of that method.
    """
    changed = _differing(tables)
    leading = [key for key in _LEADING if key in changed]
    same_method = [table for table in tables if all(table.get(key) == tables[index].get(key) for key in leading)]
    settings = [str(tables[index].get(key)) for key in leading] + [
        f"{key}={tables[index].get(key)}" for key in _differing(same_method) if key not in leading
    ]
    return ", ".join(settings[:MOST_SETTINGS]) + (
        f" and {len(settings) - MOST_SETTINGS} more" if len(settings) > MOST_SETTINGS else ""
    )


@final
@dataclass(frozen=True)
class Result:
    """One variant's row in a table.

    Args:
        name: name of the variant.
        metric: name of the metric that decides, `MODE/REWARD`.
        before, after: scores run by run; a run without a score is left out.
        controls: the controls that were trained alongside the runs for the same time.
        gains: after minus before, run by run.
        differences: after minus the first variant's score of the same seed.
        seconds: wall seconds of training, run by run.
        num_steps: steps of the longest run.
        states: state of each run, such as `finished`.
        goal: `max` where a large score is good, `min` where a small one is.

    Example:
        >>> result = Result(
        ...     "grpo",
        ...     "greedy/correct",
        ...     (0.2, 0.4),
        ...     (0.8, 1.0),
        ...     (),
        ...     (0.6, 0.6),
        ...     (),
        ...     (60.0, 62.0),
        ...     100,
        ...     ("finished", "finished"),
        ... )
        >>> round(result.mean("after"), 3), round(result.deviation("after"), 3)
        (0.9, 0.141)
    """

    name: str
    metric: str | None
    before: tuple[float, ...]
    after: tuple[float, ...]
    controls: tuple[Control, ...]
    gains: tuple[float, ...]
    differences: tuple[float, ...]
    seconds: tuple[float, ...]
    num_steps: int
    states: tuple[str, ...]
    goal: Literal["max", "min"] = "max"

    def mean(self, field: str) -> float | None:
        """Returns the mean over runs of a field of this record, or `None` without a value."""
        values = getattr(self, field)
        return mean(values) if values else None

    def deviation(self, field: str) -> float | None:
        """Returns the sample standard deviation over runs (`n - 1`) of a field of this record, or `None` where it has
        fewer than two values.
        """
        values = getattr(self, field)
        return stdev(values) if len(values) > 1 else None


def results(variants: Sequence[Variant]) -> list[Result]:
    """Returns a row for each variant, in order.

    The first evaluation of a run that has not ended counts as `before` and a later one as `after`.

    Args:
        variants: differences are taken from the first of them.

    Example:
        >>> results([])
        []
    """
    metric = next((variant.metric for variant in variants if variant.metric), None)
    reference_scores = _after_by_seed(variants[0], metric) if variants else {}
    rows = []
    for variant_index, variant in enumerate(variants):
        variant_metric = variant.metric or metric
        pairs = [_scores(run, variant_metric) for run in variant.runs]
        after = _after_by_seed(variant, variant_metric)
        rows.append(
            Result(
                name=variant.name,
                metric=variant_metric,
                before=tuple(before for before, _ in pairs if before is not None),
                after=tuple(value for _, value in pairs if value is not None),
                controls=controls(variant.runs, variant_metric),
                gains=tuple(value - before for before, value in pairs if before is not None and value is not None),
                differences=(
                    tuple(value - reference_scores[seed] for seed, value in after.items() if seed in reference_scores)
                    if variant_index and variant_metric == metric
                    else ()
                ),
                seconds=tuple(total for run in variant.runs if (total := _seconds(run)) > 0),
                num_steps=max(run.num_steps for run in variant.runs),
                states=tuple(run.state for run in variant.runs),
                goal=goal(variant.runs[0].config),
            )
        )
    return rows


def _scores(run: Run, metric: str | None) -> tuple[float | None, float | None]:
    if run.summary is not None:
        before, after = (run.summary.get(name) for name in ("before", "after"))
        return (float(before) if is_number(before) else None), (float(after) if is_number(after) else None)
    _, values = run.series(f"eval/{metric}") if metric else ([], [])
    # One evaluation is that of the start: a run that was cut off before its next has no score after training.
    return (values[0] if values else None), (values[-1] if len(values) > 1 else None)


def _after_by_seed(variant: Variant, metric: str | None) -> dict[int, float]:
    pairs = [(run.seed, _scores(run, metric)[1]) for run in variant.runs]
    return {seed: value for seed, value in pairs if seed is not None and value is not None}


def _seconds(run: Run) -> float:
    summary_seconds = (run.summary or {}).get("seconds")
    if isinstance(summary_seconds, Mapping):
        return float(sum(value for value in summary_seconds.values() if is_number(value)))
    return sum(run.series("step_time")[1])
