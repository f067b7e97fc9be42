"""The results of a grid: every variant's mean with its interval, its paired difference from the first variant, and a
verdict.
"""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any, Literal, final

from groupwise.config import ConfigError, read_json
from groupwise.experiment.loaded_run import HeldOut, evaluations, final_scores, read_summary
from groupwise.processes import is_first_process
from groupwise.runs import EvaluatedOn, read_run, reward_weights, split_metric
from groupwise.runs.folder import RunFolder
from groupwise_look.compare.grids import Bounds, Cell, Variant, difference_bounds, score_bounds, write_table
from groupwise_look.compare.statistics import (
    LEVEL,
    MOST_SEEDS,
    POWER,
    Estimate,
    Scores,
    bootstrap,
    fewest_seeds,
    holm,
    paired_difference,
    seeds_needed,
    shared,
)
from groupwise_look.diagnosis import diagnose

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
        training: metrics of training, means over steps and seeds.
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
        >>> from groupwise_look.compare.statistics import Spread
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
    training: Mapping[str, float] = field(default_factory=dict)
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
        noticed: a headline of the doctor -> the runs that it is about.
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
    noticed: Mapping[str, str] = field(default_factory=dict)
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
        return {
            **header,
            "rows": [asdict(row) for row in self.rows],
            "missing": dict(self.missing),
            "noticed": self.noticed,
        }


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
    cells: Sequence[Cell],
    show: Sequence[str] = (),
    failed: Mapping[Path, str] | None = None,
    name: str = "",
    *,
    metrics: Sequence[str] = (),
) -> Comparison | None:
    """Compares the finished cells of a grid; returns None where no cell has finished.

    Args:
        cells: variants and seeds, in the order of the table.
        show: further held-out metrics.
        failed: run folder -> the reason why its cell failed, where it is known.
        name: the experiment's name.
        metrics: metrics of training, by name or pattern.

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
    for run in (run for finished in read.values() for run in finished if run.measure != measure):
        run_measure, baseline_measure = (
            f"{metric} ({'the larger' if goal == 'max' else 'the smaller'} the better)"
            for metric, goal in (run.measure, measure)
        )
        missing[run.cell.place] = (
            f"it was measured by {run_measure} and {baseline.name} by {baseline_measure}; set train.metric to one of"
            " them in a new --out"
        )
    same = {variant: [run for run in finished if run.measure == measure] for variant, finished in read.items()}
    read = {variant: finished for variant, finished in same.items() if finished}
    scores = [score for finished in read.values() for run in finished for score in run.scores.values()]
    bounds = score_bounds(read_run(read[baseline][0].cell.folder).config, measure[0], scores)
    rows = [
        replace(_row(variant, finished, read[baseline], show, bounds), training=_training_means(finished, metrics))
        for variant, finished in read.items()
    ]
    folders = [run.cell.folder for finished in read.values() for run in finished]
    metric, goal = measure
    judged = tuple(_judged(rows, goal, cells[0].variant.name))
    evaluated_on = EvaluatedOn.together(map(EvaluatedOn.read_folder, folders))
    return Comparison(metric, judged, goal, missing, name, _noticed(read), evaluated_on)


def _noticed(read: Mapping[Variant, Sequence[_Finished]]) -> dict[str, str]:
    """Returns what the doctor says first of the runs -> the runs of which it says so."""
    noticed: dict[str, list[str]] = {}
    for cell in (run.cell for finished in read.values() for run in finished):
        run = read_run(cell.folder)
        if (headline := diagnose(run.rows, run.config).headline) is not None:
            noticed.setdefault(str(headline), []).append(cell.place)
    return {text: ", ".join(places) for text, places in noticed.items()}


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
    partners = {} if finished is baseline else {run.cell.seed: run for run in baseline}
    pairs = [(run, partners[run.cell.seed]) for run in finished if run.cell.seed in partners]
    scores = [{run.cell.seed: run.scores for run in side} for side in (finished, baseline)]
    gains = [{run.cell.seed: gain for run in side if (gain := run.gains) is not None} for side in (finished, baseline)]
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


def _paired(scores_of_both: Sequence[Scores]) -> tuple[Scores, Scores]:
    """Returns the scores of the seeds whose runs have a prompt in common."""
    first, second = scores_of_both
    seeds = [seed for seed in first if seed in second and set(first[seed]) & set(second[seed])]
    return {seed: first[seed] for seed in seeds}, {seed: second[seed] for seed in seeds}


def _judged(rows: Sequence[Row], goal: str, first_variant: str) -> list[Row]:
    """Returns the rows with p-values corrected for the number of comparisons, and with verdicts."""
    gaps = {row.variant: row.difference for row in rows if row.difference is not None}
    chances = {name: chance for name, gap in gaps.items() if (chance := gap.p_value) is not None}
    corrected = holm(chances)
    judged = []
    for row in rows:
        row = replace(row, p_value=corrected.get(row.variant))
        if (gap := row.difference) is not None and not row.distinguishable:
            needed = seeds_needed(gap.mean, gap.spread, num_comparisons=max(1, len(chances)))
            row = replace(row, seeds_needed=needed)
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


def _training_means(finished: Sequence[_Finished], patterns: Sequence[str]) -> dict[str, float]:
    rows = [row for run in finished for row in read_run(run.cell.folder).rows] if patterns else []
    values: dict[str, list[float]] = {}
    for row in rows:
        for name, value in row.items():
            if isinstance(value, int | float) and any(fnmatchcase(name, pattern) for pattern in patterns):
                values.setdefault(name, []).append(value)
    return {name: sum(numbers) / len(numbers) for name, numbers in values.items()}


def save(comparison: Comparison, out: Path) -> Path:
    """Writes `results.json` into the folder of a grid and returns its path.

    Example:
        >>> import tempfile
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     save(Comparison("greedy/correct", ()), Path(folder)).name
        'results.json'
    """
    return write_table(out / "results.json", comparison.table())


# Gains of runs over their controls: paired differences, of one run or of several with different seeds.

Gains = dict[str, dict[str, Estimate]]
"""control -> metric of the evaluation -> the run's score minus the control's."""


def gains(runs: Mapping[int, Path]) -> Gains:
    """Estimates the gains of runs over their controls, prompt by prompt of the evaluation: of the deciding metric, and
    of every reward and judge that was recorded with it.

    Run and control begin at the same weights and are evaluated on the same prompts, so the influence of both cancels.
    The interval of a single run covers the choice of prompts only; that of several runs covers the seeds as well.

    Args:
        runs: seed -> run folder.

    Returns:
        estimates of `run - control`. Left out are controls that have not ended, metrics that run or control lacks, and
        differences that are 0 on every prompt, except that of the deciding metric.

    Example:
        >>> gains({0: Path("nowhere")})
        {}
    """
    names = dict.fromkeys(name for run in runs.values() for name in RunFolder(run).ended_controls)
    config = next((read_json(folder.config) for folder in map(RunFolder, runs.values()) if folder.is_run), {})
    first_metric = next((str(read_summary(run)["metric"]) for run in runs.values() if RunFolder(run).has_ended), "")
    gains_by_control: Gains = {}
    for name in names:
        sides: dict[str, tuple[dict[int, Mapping[str, float]], dict[int, Mapping[str, float]]]] = {}
        for seed, run in runs.items():
            folder = RunFolder(run)
            if not (folder.has_ended and folder.control(name).has_ended):
                continue
            run_scores, control_scores = _controls_scores(run, run), _controls_scores(run, folder.control(name).path)
            for metric in run_scores.keys() & control_scores.keys():
                # A metric that is not a mean over prompts has a single score, from which no interval can be computed.
                if len(run_scores[metric].keys() & control_scores[metric].keys()) > 1:
                    run_sides, control_sides = sides.setdefault(metric, ({}, {}))
                    run_sides[seed], control_sides[seed] = run_scores[metric], control_scores[metric]
        ordered_metrics = sorted(sides, key=lambda metric: (metric != first_metric, metric))
        estimates = {metric: _difference(config, metric, *sides[metric]) for metric in ordered_metrics}
        gains_by_control[name] = {
            metric: estimate for metric, estimate in estimates.items() if metric == first_metric or not estimate.is_zero
        }
    return {name: estimates for name, estimates in gains_by_control.items() if estimates}


def _difference(config: Mapping[str, Any], metric: str, run: Scores, control: Scores) -> Estimate:
    bounds = score_bounds(
        config, metric, [score for side in (run, control) for scores in side.values() for score in scores.values()]
    )
    return paired_difference(run, control).within(difference_bounds(bounds))


def describe_gains(estimates: Mapping[str, Estimate], prompts: str) -> str:
    """Describes the differences between a run and a control in words.

    Args:
        estimates: metric -> the run's score minus the control's.
        prompts: a word for the evaluation's prompts, `EvaluatedOn.prompts`.

    Example:
        >>> from groupwise_look.compare.statistics import Spread
        >>> describe_gains(
        ...     {"restored/read": Estimate(0.1, 0.08, 0.12, Spread(0.0, 0.0001, 1, 597))}, "held-out prompts"
        ... )
        'above it by restored/read +0.1 [+0.08, +0.12]; 95 % over 597 held-out prompts'
    """
    first_estimate = next(iter(estimates.values()))
    differing = {metric: estimate for metric, estimate in estimates.items() if not estimate.is_zero}
    seeds = f"{first_estimate.num_seeds} seeds and " if first_estimate.num_seeds > 1 else ""
    sample = f"{seeds}{first_estimate.spread.num_prompts} {prompts}"
    sentences = [f"the same by {metric} on each of {sample}" for metric in estimates if metric not in differing]
    if differing:
        differences = ", ".join(
            f"{metric} {estimate.mean:+.3g} [{estimate.low:+.3g}, {estimate.high:+.3g}]"
            for metric, estimate in differing.items()
        )
        sentences.append(f"above it by {differences}; 95 % over {sample}")
    return "; ".join(sentences)


def described_gains(run: Path) -> dict[str, str]:
    """Describes a run's gains over its controls in words.

    Returns:
        control -> sentence.

    Example:
        >>> described_gains(Path("nowhere"))
        {}
    """
    prompts = EvaluatedOn.read_folder(run).prompts
    return {name: describe_gains(over, prompts) for name, over in gains({0: run}).items()}


def write_gains(run: Path) -> dict[str, Any]:
    """Writes a run's gains over its controls into its `summary.json`, under `controls`, and returns the summary.

    Args:
        run: the folder of a run that has ended.
    """
    from groupwise.training.run.run_folder import write_json

    summary = read_summary(run)
    gains_by_control = gains({int(summary["seed"]): run})
    if not gains_by_control:
        return summary
    intervals = {
        name: {metric: [estimate.mean, estimate.low, estimate.high] for metric, estimate in estimates.items()}
        for name, estimates in gains_by_control.items()
    }
    summary = {**summary, "controls": intervals}
    if is_first_process():
        write_json(RunFolder(run).summary, summary)
    return summary


def _controls_scores(run: Path, folder: Path) -> dict[str, dict[str, float]]:
    """Returns metric -> prompt -> score, at the end of a run or of one of its controls."""
    summary = read_summary(folder)
    deciding_metric, step = summary.get("metric"), summary.get("steps")
    if deciding_metric is None or step is None:
        return {}
    records = evaluations(folder).get(step, [])
    mode, _ = split_metric(deciding_metric, records)
    names = dict.fromkeys(
        name for record in records if record.get("mode") == mode for name in record.get("rewards", {})
    )
    weights = reward_weights(read_json(RunFolder(run).config))
    metrics = dict.fromkeys([deciding_metric, *(f"{mode}/{name}" for name in names)])
    return {
        name: HeldOut(name, step, records, summary["after"] if name == deciding_metric else None).scores(weights)
        for name in metrics
    }
