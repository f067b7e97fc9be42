"""Results of each variant: the scores of its evaluations before and after training, over its seeds."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import mean, stdev
from typing import Literal, final

from groupwise.report.controls import Control, controls, goal
from groupwise.report.variants import Variant
from groupwise.runs import Run, is_number


@final
@dataclass(frozen=True)
class Result:
    """One variant's row in a table.

    Args:
        name: name of the variant.
        metric: name of the metric that decides, `MODE/REWARD`.
        before, after: scores run by run; a run without a score is left out.
        controls: the controls that were trained beside the runs for the same time.
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

    Of a run that has not ended, the first evaluation counts as `before` and the last as `after`.

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
    return (values[0], values[-1]) if values else (None, None)


def _after_by_seed(variant: Variant, metric: str | None) -> dict[int, float]:
    pairs = [(run.seed, _scores(run, metric)[1]) for run in variant.runs]
    return {seed: value for seed, value in pairs if seed is not None and value is not None}


def _seconds(run: Run) -> float:
    summary_seconds = (run.summary or {}).get("seconds")
    if isinstance(summary_seconds, Mapping):
        return float(sum(value for value in summary_seconds.values() if is_number(value)))
    return sum(run.series("step_time")[1])
