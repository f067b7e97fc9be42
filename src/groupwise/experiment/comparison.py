"""What a grid found: every variant's mean with its interval, its difference from the first one pair by pair, and what
can be said of it.
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
from groupwise.experiment.significance import LEVEL, MOST_SEEDS, POWER, holm, seeds_needed
from groupwise.experiment.statistics import Estimate, Scores, bootstrap, paired_difference
from groupwise.experiment.variants import Variant
from groupwise.runs import EvaluatedOn, read_run

NOT_TRAINING = ("setup", "warm_up", "evaluation", "checkpoint")
"""Parts of a run's wall time that no method is charged with."""


@final
@dataclass(frozen=True)
class Row:
    """One variant of a comparison.

    Args:
        variant: its name.
        before: mean over seeds of the held-out score before training.
        after: the held-out score at the end.
        difference: how much it exceeds the first variant, seed by seed and prompt by prompt; none for the first one
            itself.
        seconds: mean wall time of a run.
        seeds: those that finished.
        start, end: further held-out metrics before training and at the end, means over seeds; left out where a run did
            not report them.
        training_seconds: of those seconds, sampling, rewards, scoring and updates.
        per_second: gain of the held-out score over its start, for each second of training; a gain is a fall where the
            metric is to be small.
        per_second_difference: how much that exceeds the first variant's, pair by pair.
        p_value: the chance of such a difference where there is none, corrected for the number of comparisons (Holm).
        seeds_needed: how many seeds would find this difference, were it the real one; none where it is found already or
            `MOST_SEEDS` would not do.
        shares: what its runs share with the first variant's in every pair.
        verdict: what can be said, in a sentence.

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
        """Whether the difference is told from none, with all comparisons of the table counted."""
        return self.p_value is not None and self.p_value < LEVEL


@final
@dataclass(frozen=True)
class Comparison:
    """Rows in the order of the variants; those without a finished run are left out.

    Args:
        metric: the metric of the evaluations that was compared.
        rows: one a variant.
        goal: whether the metric is to be large or small.
        missing: run folder -> why it is not in the table.
        name: of the experiment.
        evaluated_on: whether the prompts of the evaluations were trained on, as far as that is the same in all runs.

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
        """What runs of one seed share with the first variant's, and which variants do."""
        groups: dict[tuple[str, ...], list[str]] = {}
        for row in self.rows[1:]:
            if row.difference is not None:
                groups.setdefault(row.shares, []).append(row.variant)
        return [
            (", ".join(what) or "nothing that the folders record", ", ".join(names)) for what, names in groups.items()
        ]

    def table(self) -> dict[str, Any]:
        """JSON-able values, as `results.json` holds them."""
        told = {
            "experiment": self.name,
            "metric": self.metric,
            "goal": self.goal,
            "level": LEVEL,
            "power": POWER,
            "evaluated_on": self.evaluated_on.prompts,
        }
        return {**told, "rows": [asdict(row) for row in self.rows], "missing": dict(self.missing)}


@final
@dataclass(frozen=True)
class _Finished:
    """A finished cell, read."""

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
        """Prompt key -> gain over the mean before, for each second of training."""
        before, seconds = self.summary.get("before"), self.training_seconds
        if before is None or seconds <= 0:
            return None
        sign = 1.0 if self.goal == "max" else -1.0
        return {key: sign * (score - before) / seconds for key, score in self.scores.items()}


def compare(
    cells: Sequence[Cell], show: Sequence[str] = (), failed: Mapping[Path, str] | None = None, name: str = ""
) -> Comparison | None:
    """Reads the finished cells of a grid; None when there is none.

    Args:
        cells: variants and seeds, in the order in which they are shown.
        show: further held-out metrics.
        failed: run folder -> why its cell failed, where that is known.
        name: of the experiment.

    Returns:
        a row for every variant with a finished run. A run that failed, has not ended, cannot be read or was measured by
        another metric than the first one is named in `missing`.

    Example:
        >>> compare([]) is None
        True
    """
    read, missing = _read(cells, failed or {})
    if not read:
        return None
    first = next(iter(read))
    measure = read[first][0].measure
    for variant, finished in list(read.items()):
        for each in finished:
            if each.measure != measure:
                ours, theirs = (
                    f"{metric} ({'the larger' if goal == 'max' else 'the smaller'} the better)"
                    for metric, goal in (each.measure, measure)
                )
                missing[each.cell.place] = (
                    f"it was measured by {ours} and {first.name} by {theirs}; set train.metric to one of them in a new"
                    " --out"
                )
        read[variant] = [each for each in finished if each.measure == measure]
    read = {variant: finished for variant, finished in read.items() if finished}
    scores = [score for finished in read.values() for run in finished for score in run.scores.values()]
    bounds = score_bounds(read_run(read[first][0].cell.folder).config, measure[0], scores)
    rows = [_row(variant, finished, read[first], show, bounds) for variant, finished in read.items()]
    goal = measure[1]
    evaluated_on = EvaluatedOn.together(
        EvaluatedOn.read_folder(run.cell.folder) for finished in read.values() for run in finished
    )
    return Comparison(
        str(read[first][0].summary["metric"]),
        tuple(_judged(rows, goal, cells[0].variant.name)),
        goal,
        missing,
        name,
        evaluated_on,
    )


def _read(cells: Sequence[Cell], failed: Mapping[Path, str]) -> tuple[dict[Variant, list[_Finished]], dict[str, str]]:
    found: dict[Variant, list[_Finished]] = {}
    missing: dict[str, str] = {}
    for cell in cells:
        found.setdefault(cell.variant, [])
        if not cell.finished:
            missing[cell.place] = failed.get(cell.folder, "has not ended")
            continue
        try:
            scores = final_scores(cell.folder)
            if not scores:
                raise ConfigError(f"{cell.folder} reported no value of its metric")
            goal = read_run(cell.folder).config.get("train", {}).get("metric_goal", "max")
            found[cell.variant].append(_Finished(cell, read_summary(cell.folder), scores, goal))
        except ConfigError as error:
            missing[cell.place] = str(error)
    return {variant: finished for variant, finished in found.items() if finished}, missing


def _row(
    variant: Variant,
    finished: Sequence[_Finished],
    baseline: Sequence[_Finished],
    show: Sequence[str],
    bounds: Bounds | None,
) -> Row:
    before = [found for each in finished if (found := each.summary.get("before")) is not None]
    others = {each.cell.seed: each for each in baseline}
    is_first = finished is baseline
    pairs = [] if is_first else [(each, others[each.cell.seed]) for each in finished if each.cell.seed in others]
    scores = [_scores(side) for side in (finished, baseline)]
    gains = [_gains(side) for side in (finished, baseline)]
    shares = [set(shared(each.cell.folder, other.cell.folder)) for each, other in pairs]
    common = any(set(each.scores) & set(other.scores) for each, other in pairs)
    return Row(
        variant=variant.name,
        before=sum(before) / len(before) if before else None,
        after=bootstrap(scores[0]).within(bounds),
        difference=paired_difference(*_paired(scores)).within(difference_bounds(bounds)) if common else None,
        seconds=sum(sum(each.seconds.values()) for each in finished) / len(finished),
        seeds=tuple(each.cell.seed for each in finished),
        start=_means(finished, "before", show),
        end=_means(finished, "after", show),
        training_seconds=sum(each.training_seconds for each in finished) / len(finished),
        per_second=bootstrap(gains[0]) if gains[0] else None,
        per_second_difference=paired_difference(*_paired(gains)) if common and all(gains) else None,
        shares=tuple(sorted(set.intersection(*shares))) if shares else (),
    )


def _scores(finished: Sequence[_Finished]) -> Scores:
    return {each.cell.seed: each.scores for each in finished}


def _gains(finished: Sequence[_Finished]) -> Scores:
    return {each.cell.seed: gains for each in finished if (gains := each.gains) is not None}


def _paired(sides: Sequence[Scores]) -> tuple[Scores, Scores]:
    """The seeds whose runs have a prompt in common."""
    first, second = sides
    seeds = [seed for seed in first if seed in second and set(first[seed]) & set(second[seed])]
    return {seed: first[seed] for seed in seeds}, {seed: second[seed] for seed in seeds}


def _judged(rows: Sequence[Row], goal: str, wanted: str) -> list[Row]:
    """Rows with what can be said when all their comparisons are counted."""
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
        judged.append(replace(row, verdict=_verdict(row, rows[0].variant, goal, wanted)))
    return judged


def _verdict(row: Row, first: str, goal: str, wanted: str) -> str:
    if row.variant == first:
        return "what the others are compared with" + (
            "" if first == wanted else f", in place of {wanted}, which has no finished run"
        )
    if row.difference is None:
        return f"has no run of a seed and a prompt that {first} has as well"
    number = row.difference.num_seeds
    if row.distinguishable:
        better = (row.difference.mean > 0) == (goal == "max")
        return f"{'better' if better else 'worse'} than {first}"
    said = f"not distinguishable at this number of seeds ({number})"
    if number < 2:
        return f"{said}: one seed says nothing of others"
    if row.difference.mean == 0:
        return f"{said}: no difference was measured"
    if row.seeds_needed is None:
        return f"{said}; were the measured difference the real one, {MOST_SEEDS} seeds would not do"
    return f"{said}; were the measured difference the real one, {row.seeds_needed} would be needed"


def evaluated(run: Path, when: Literal["before", "after"]) -> Mapping[str, float]:
    """All held-out metrics of the evaluation that the summary's `before` or `after` is of.

    Args:
        run: the folder of a run that has ended.
        when: the evaluation where the first stage that samples began, or the one at the end.
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
    runs = [evaluated(each.cell.folder, when) for each in finished] if names else []
    return {name: sum(run[name] for run in runs) / len(runs) for name in names if all(name in run for run in runs)}


def save(comparison: Comparison, out: Path) -> Path:
    """Writes `results.json` into the folder of a grid and returns its path.

    Args:
        comparison: what was found.
        out: the folder of the grid.

    Example:
        >>> import tempfile
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     save(Comparison("greedy/correct", ()), Path(folder)).name
        'results.json'
    """
    path = out / "results.json"
    path.write_text(json.dumps(comparison.table(), indent=2) + "\n", encoding="utf-8")
    return path
