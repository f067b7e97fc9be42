"""What each variant came to: scores of its evaluations before and after, over its seeds."""

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
        name: the variant's.
        metric: the metric that decides.
        before, after: scores run by run, where they are known.
        controls: what was trained beside the runs for the same time, each by its name.
        gains: after less before, run by run.
        differences: after less that of the first variant with the same seed.
        seconds: of a run.
        num_steps: of a run, the most.
        states: of the runs.
        goal: whether more of the metric is better, or less.

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
        """The mean over runs.

        Args:
            field: of this record.

        Returns:
            `None` without a value.
        """
        values = getattr(self, field)
        return mean(values) if values else None

    def deviation(self, field: str) -> float | None:
        """The standard deviation over runs (of a sample, `n - 1`).

        Args:
            field: of this record.

        Returns:
            `None` with fewer than two values.
        """
        values = getattr(self, field)
        return stdev(values) if len(values) > 1 else None


def results(variants: Sequence[Variant]) -> list[Result]:
    """A row for each variant, in order. Where a run has not ended, its last evaluation counts as what it came to, and
    its first as what it began with.

    Args:
        variants: any; differences are taken from the first.

    Example:
        >>> results([])
        []
    """
    metric = next((variant.metric for variant in variants if variant.metric), None)
    first = _after_by_seed(variants[0], metric) if variants else {}
    found = []
    for place, variant in enumerate(variants):
        own = variant.metric or metric
        pairs = [_scores(run, own) for run in variant.runs]
        after = _after_by_seed(variant, own)
        found.append(
            Result(
                name=variant.name,
                metric=own,
                before=tuple(before for before, _ in pairs if before is not None),
                after=tuple(value for _, value in pairs if value is not None),
                controls=controls(variant.runs, own),
                gains=tuple(value - before for before, value in pairs if before is not None and value is not None),
                differences=(
                    tuple(value - first[seed] for seed, value in after.items() if seed in first)
                    if place and own == metric
                    else ()
                ),
                seconds=tuple(total for run in variant.runs if (total := _seconds(run)) > 0),
                num_steps=max(run.num_steps for run in variant.runs),
                states=tuple(run.state for run in variant.runs),
                goal=goal(variant.runs[0].config),
            )
        )
    return found


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
    given = (run.summary or {}).get("seconds")
    if isinstance(given, Mapping):
        return float(sum(value for value in given.values() if is_number(value)))
    return sum(run.series("step_time")[1])
