"""What a grid found: every variant's mean with its interval, and its difference from the first one, pair by pair."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, final

from groupwise.config import ConfigError
from groupwise.experiment.grids import Cell
from groupwise.experiment.held_out import final_scores, read_summary
from groupwise.experiment.statistics import Estimate, Scores, bootstrap, paired_difference
from groupwise.experiment.variants import Variant


@final
@dataclass(frozen=True)
class Row:
    """One variant of a comparison.

    Args:
        variant: its name.
        before: mean over seeds of the held-out score before training.
        after: the held-out score at the end.
        difference: how much it exceeds the first variant, seed by seed and prompt by prompt; none for the first one itself.
        seconds: mean wall time of a run.
        seeds: those that finished.
    """

    variant: str
    before: float | None
    after: Estimate
    difference: Estimate | None
    seconds: float
    seeds: tuple[int, ...]


@final
@dataclass(frozen=True)
class Comparison:
    """Rows in the order of the variants; those without a finished run are left out.

    Args:
        metric: the held-out metric that was compared.
        rows: one a variant.
    """

    metric: str
    rows: tuple[Row, ...]

    def table(self) -> dict[str, Any]:
        """JSON-able values, as `results.json` holds them."""
        return {"metric": self.metric, "rows": [asdict(row) for row in self.rows]}


def compare(cells: Sequence[Cell]) -> Comparison | None:
    """Reads the finished cells of a grid; None when there is none.

    Raises:
        ConfigError: runs that were measured by different metrics, or by none.
    """
    done: dict[Variant, list[Cell]] = {}
    for cell in cells:
        done.setdefault(cell.variant, [])
        if cell.finished:
            done[cell.variant].append(cell)
    done = {variant: finished for variant, finished in done.items() if finished}
    if not done:
        return None
    metrics = {str(read_summary(cell.folder)["metric"]) for finished in done.values() for cell in finished}
    if len(metrics) > 1:
        raise ConfigError(f"the variants were measured by different metrics ({', '.join(sorted(metrics))}); set train.metric to one of them")
    scores: dict[Variant, Scores] = {variant: {cell.seed: final_scores(cell.folder) for cell in finished} for variant, finished in done.items()}
    first = next(iter(done))
    rows = []
    for variant, finished in done.items():
        summaries = [read_summary(cell.folder) for cell in finished]
        before = [summary["before"] for summary in summaries if summary["before"] is not None]
        paired = variant != first and set(scores[variant]) & set(scores[first])
        rows.append(
            Row(
                variant=variant.name,
                before=sum(before) / len(before) if before else None,
                after=bootstrap(scores[variant]),
                difference=paired_difference(scores[variant], scores[first]) if paired else None,
                seconds=sum(sum(summary["seconds"].values()) for summary in summaries) / len(summaries),
                seeds=tuple(cell.seed for cell in finished),
            )
        )
    return Comparison(metrics.pop(), tuple(rows))


def save(comparison: Comparison, out: Path) -> Path:
    """Writes `results.json` into the folder of a grid and returns its path."""
    path = out / "results.json"
    path.write_text(json.dumps(comparison.table(), indent=2) + "\n", encoding="utf-8")
    return path
