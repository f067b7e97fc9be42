"""The results of a grid: every variant's mean with its interval, its paired difference from the first variant, and a
verdict.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, Literal, final

from groupwise.config import ConfigError
from groupwise.experiment.bounds import Bounds, difference_bounds, score_bounds
from groupwise.experiment.grids import Cell
from groupwise.experiment.held_out import final_scores, read_summary
from groupwise.experiment.pairing import shared
from groupwise.experiment.significance import LEVEL, MOST_SEEDS, POWER, fewest_seeds, holm, seeds_needed
from groupwise.experiment.statistics import Estimate, Scores, bootstrap, paired_difference
from groupwise.experiment.variants import Variant
from groupwise.runs import EvaluatedOn, read_run

NOT_TRAINING = ("setup", "warm_up", "evaluation", "checkpoint")
"""Parts of a run's wall time that do not count as training."""


@final
@dataclass(frozen=True)
class Row:
    """One variant of a comparison.

    Args:
        variant: the variant's name.
        before: mean over seeds of the held-out score before training.
        after: the held-out score at the end.
        difference: the variant's score minus the first variant's, seed by seed and prompt by prompt; None for the first
            variant itself.
        seconds: mean wall time of a run.
        seeds: the seeds whose runs finished.
        start, end: further held-out metrics before training and at the end, means over seeds; metrics that a run did
            not report are left out.
        training_seconds: the part of `seconds` spent on sampling, rewards, scoring and updates.
        per_second: gain of the held-out score over its start, for each second of training; a gain is a fall where the
            metric is to be small.
        per_second_difference: the variant's `per_second` minus the first variant's, pair by pair.
        p_value: the probability of a difference this large between equal variants, corrected for the number of
            comparisons (Holm).
        seeds_needed: the number of seeds that would detect a true difference of this size; None where it is detected
            already, or more than `MOST_SEEDS` would be needed.
        shares: the things that the variant's runs have in common with the first variant's in every pair.
        verdict: the conclusion, in a sentence.

    Example:
        >>> from groupwise.experiment.spread import Spread
        >>> row = Row("method=grpo", 0.5, Estimate(0.9, 0.8, 1.0, Spread(0.001, 0.0, 3, 100)), None, 60.0, (0, 1, 2))
        >>> row.after.mean
        0.9
    """

    variant: str
    before: float | None
    after: Estimate
    difference: Estimate | None
    seconds: float
    seeds: tuple[int, ...]
    start: Mapping[str, float] = field(default_factory=dict)
    end: Mapping[str, float] = field(default_factory=dict)
    training_seconds: float = 0.0
    per_second: Estimate | None = None
    per_second_difference: Estimate | None = None
    p_value: float | None = None
    seeds_needed: int | None = None
    shares: tuple[str, ...] = ()
    verdict: str = ""

    @property
    def distinguishable(self) -> bool:
        """True where the difference is significant, after correction for all comparisons of the table."""
        return self.p_value is not None and self.p_value < LEVEL


@final
@dataclass(frozen=True)
class Comparison:
    """The table of a comparison, in the order of the variants; a variant without a finished run is left out.

    Args:
        metric: the metric of the evaluations that was compared.
        rows: one row a variant.
        goal: whether the metric is to be large or small.
        missing: run folder -> the reason why its run is not in the table.
        name: the experiment's name.
        evaluated_on: whether the prompts of the evaluations were trained on, where all runs agree about it.

    Example:
        >>> Comparison("greedy/correct", ()).table()["rows"]
        []
    """

    metric: str
    rows: tuple[Row, ...]
    goal: Literal["max", "min"] = "max"
    missing: Mapping[str, str] = field(default_factory=dict)
    name: str = ""
    evaluated_on: EvaluatedOn = field(default_factory=EvaluatedOn)

    @property
    def shared(self) -> list[tuple[str, str]]:
        """Pairs of texts: things that runs of one seed have in common with the first variant's, and the variants."""
        groups: dict[tuple[str, ...], list[str]] = {}
        for row in self.rows[1:]:
            if row.difference is not None:
                groups.setdefault(row.shares, []).append(row.variant)
        return [
            (", ".join(shares) or "nothing that the folders record", ", ".join(names))
            for shares, names in groups.items()
        ]

    def table(self) -> dict[str, Any]:
        """Returns the comparison as the JSON-able content of `results.json`."""
        header = {
            "experiment": self.name,
            "metric": self.metric,
            "goal": self.goal,
            "level": LEVEL,
            "power": POWER,
            "evaluated_on": self.evaluated_on.prompts,
        }
        return {**header, "rows": [asdict(row) for row in self.rows], "missing": dict(self.missing)}


@final
@dataclass(frozen=True)
class _Finished:
    """A finished cell with the results in its run folder."""

    cell: Cell
    summary: Mapping[str, Any]
    scores: Mapping[str, float]
    goal: Literal["max", "min"]

    @property
    def measure(self) -> tuple[str, Literal["max", "min"]]:
        return str(self.summary["metric"]), self.goal

    @property
    def training_seconds(self) -> float:
        return sum(float(spent) for part, spent in self.seconds.items() if part not in NOT_TRAINING)

    @property
    def seconds(self) -> Mapping[str, float]:
        return self.summary.get("seconds") or {}

    @property
    def gains(self) -> dict[str, float] | None:
        """Prompt key -> gain over the mean score before training, for each second of training."""
        score_before, seconds = self.summary.get("before"), self.training_seconds
        if score_before is None or seconds <= 0:
            return None
        sign = 1.0 if self.goal == "max" else -1.0
        return {key: sign * (score - score_before) / seconds for key, score in self.scores.items()}


def compare(
    cells: Sequence[Cell], show: Sequence[str] = (), failed: Mapping[Path, str] | None = None, name: str = ""
) -> Comparison | None:
    """Compares the finished cells of a grid; returns None where no cell has finished.

    Args:
        cells: variants and seeds, in the order of the table.
        show: further held-out metrics.
        failed: run folder -> the reason why its cell failed, where it is known.
        name: the experiment's name.

    Returns:
        a row for every variant with a finished run. `missing` names every run that failed, has not ended, cannot be
        read, or was measured by another metric than the first run.

    Example:
        >>> compare([]) is None
        True
    """
    read, missing = _read(cells, failed or {})
    if not read:
        return None
    baseline = next(iter(read))
    measure = read[baseline][0].measure
    for variant, finished in list(read.items()):
        for run in finished:
            if run.measure != measure:
                run_measure, baseline_measure = (
                    f"{metric} ({'the larger' if goal == 'max' else 'the smaller'} the better)"
                    for metric, goal in (run.measure, measure)
                )
                missing[run.cell.place] = (
                    f"it was measured by {run_measure} and {baseline.name} by {baseline_measure}; set train.metric to"
                    " one of them in a new --out"
                )
        read[variant] = [run for run in finished if run.measure == measure]
    read = {variant: finished for variant, finished in read.items() if finished}
    scores = [score for finished in read.values() for run in finished for score in run.scores.values()]
    bounds = score_bounds(read_run(read[baseline][0].cell.folder).config, measure[0], scores)
    rows = [_row(variant, finished, read[baseline], show, bounds) for variant, finished in read.items()]
    goal = measure[1]
    evaluated_on = EvaluatedOn.together(
        EvaluatedOn.read_folder(run.cell.folder) for finished in read.values() for run in finished
    )
    return Comparison(
        str(read[baseline][0].summary["metric"]),
        tuple(_judged(rows, goal, cells[0].variant.name)),
        goal,
        missing,
        name,
        evaluated_on,
    )


def _read(cells: Sequence[Cell], failed: Mapping[Path, str]) -> tuple[dict[Variant, list[_Finished]], dict[str, str]]:
    finished_runs: dict[Variant, list[_Finished]] = {}
    missing: dict[str, str] = {}
    for cell in cells:
        finished_runs.setdefault(cell.variant, [])
        if not cell.finished:
            missing[cell.place] = failed.get(cell.folder, "has not ended")
            continue
        try:
            scores = final_scores(cell.folder)
            if not scores:
                raise ConfigError(f"{cell.folder} reported no value of its metric")
            goal = read_run(cell.folder).config.get("train", {}).get("metric_goal", "max")
            finished_runs[cell.variant].append(_Finished(cell, read_summary(cell.folder), scores, goal))
        except ConfigError as error:
            missing[cell.place] = str(error)
    return {variant: runs for variant, runs in finished_runs.items() if runs}, missing


def _row(
    variant: Variant,
    finished: Sequence[_Finished],
    baseline: Sequence[_Finished],
    show: Sequence[str],
    bounds: Bounds | None,
) -> Row:
    scores_before = [score for run in finished if (score := run.summary.get("before")) is not None]
    baseline_runs = {run.cell.seed: run for run in baseline}
    is_first = finished is baseline
    pairs = (
        [] if is_first else [(run, baseline_runs[run.cell.seed]) for run in finished if run.cell.seed in baseline_runs]
    )
    scores = [_scores(side) for side in (finished, baseline)]
    gains = [_gains(side) for side in (finished, baseline)]
    shares = [set(shared(run.cell.folder, baseline_run.cell.folder)) for run, baseline_run in pairs]
    common = any(set(run.scores) & set(baseline_run.scores) for run, baseline_run in pairs)
    return Row(
        variant=variant.name,
        before=sum(scores_before) / len(scores_before) if scores_before else None,
        after=bootstrap(scores[0]).within(bounds),
        difference=paired_difference(*_paired(scores)).within(difference_bounds(bounds)) if common else None,
        seconds=sum(sum(run.seconds.values()) for run in finished) / len(finished),
        seeds=tuple(run.cell.seed for run in finished),
        start=_means(finished, "before", show),
        end=_means(finished, "after", show),
        training_seconds=sum(run.training_seconds for run in finished) / len(finished),
        per_second=bootstrap(gains[0]) if gains[0] else None,
        per_second_difference=paired_difference(*_paired(gains)) if common and all(gains) else None,
        shares=tuple(sorted(set.intersection(*shares))) if shares else (),
    )


def _scores(finished: Sequence[_Finished]) -> Scores:
    return {run.cell.seed: run.scores for run in finished}


def _gains(finished: Sequence[_Finished]) -> Scores:
    return {run.cell.seed: gains for run in finished if (gains := run.gains) is not None}


def _paired(scores_of_both: Sequence[Scores]) -> tuple[Scores, Scores]:
    """Returns the scores of the seeds whose runs have a prompt in common."""
    variant_scores, baseline_scores = scores_of_both
    seeds = [
        seed
        for seed in variant_scores
        if seed in baseline_scores and set(variant_scores[seed]) & set(baseline_scores[seed])
    ]
    return {seed: variant_scores[seed] for seed in seeds}, {seed: baseline_scores[seed] for seed in seeds}


def _judged(rows: Sequence[Row], goal: str, first_variant: str) -> list[Row]:
    """Returns the rows with p-values corrected for the number of comparisons, and with verdicts."""
    chances = {
        row.variant: chance
        for row in rows
        if row.difference is not None and (chance := row.difference.p_value) is not None
    }
    corrected = holm(chances)
    judged = []
    for row in rows:
        if (gap := row.difference) is not None:
            row = replace(row, p_value=corrected.get(row.variant))
            if not row.distinguishable:
                row = replace(
                    row, seeds_needed=seeds_needed(gap.mean, gap.spread, num_comparisons=max(1, len(chances)))
                )
        verdict = _verdict(row, rows[0].variant, goal, first_variant, fewest_seeds(len(chances)))
        judged.append(replace(row, verdict=verdict))
    return judged


def _verdict(row: Row, baseline: str, goal: str, first_variant: str, fewest: int) -> str:
    if row.variant == baseline:
        return "what the others are compared with" + (
            "" if baseline == first_variant else f", in place of {first_variant}, which has no finished run"
        )
    if row.difference is None:
        return f"has no run of a seed and a prompt that {baseline} has as well"
    number = row.difference.num_seeds
    if row.distinguishable:
        better = (row.difference.mean > 0) == (goal == "max")
        return f"{'better' if better else 'worse'} than {baseline}"
    verdict = f"not distinguishable at this number of seeds ({number})"
    if number < 2:
        return f"{verdict}: one seed says nothing of others"
    if row.difference.mean == 0:
        return f"{verdict}: no difference was measured"
    if number < fewest:
        verdict = f"{verdict}: a table of this size calls no difference real with fewer than {fewest}"
    if row.seeds_needed is None:
        return f"{verdict}; were the measured difference the real one, {MOST_SEEDS} seeds would not do"
    return f"{verdict}; were the measured difference the real one, {row.seeds_needed} would be needed"


def evaluated(run: Path, when: Literal["before", "after"]) -> Mapping[str, float]:
    """Returns all held-out metrics of the evaluation from which the summary's `before` or `after` comes.

    Args:
        run: the folder of a run that has ended.
        when: the evaluation at the beginning of the first stage that samples, or the one at the end.
    """
    summary = read_summary(run)
    rows = [row for row in read_run(run).rows if row.get(f"eval/{summary['metric']}") == summary.get(when)]
    row = {} if not rows else rows[0] if when == "before" else rows[-1]
    return {
        name.removeprefix("eval/"): float(value)
        for name, value in row.items()
        if name.startswith("eval/") and isinstance(value, int | float)
    }


def _means(finished: Sequence[_Finished], when: Literal["before", "after"], names: Sequence[str]) -> dict[str, float]:
    evaluations = [evaluated(run.cell.folder, when) for run in finished] if names else []
    return {
        name: sum(metrics[name] for metrics in evaluations) / len(evaluations)
        for name in names
        if all(name in metrics for metrics in evaluations)
    }


def save(comparison: Comparison, out: Path) -> Path:
    """Writes `results.json` into the folder of a grid and returns its path.

    Example:
        >>> import tempfile
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     save(Comparison("greedy/correct", ()), Path(folder)).name
        'results.json'
    """
    path = out / "results.json"
    path.write_text(json.dumps(comparison.table(), indent=2) + "\n", encoding="utf-8")
    return path
