"""The page of a comparison: one HTML file that holds all it shows, without scripts and without the network."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from groupwise.experiment.comparison import Comparison, Row
from groupwise.experiment.statistics import Estimate

_TEMPLATE = Path(__file__).with_name("page.html")
_WIDTH = 100.0


def write_page(comparison: Comparison, out: Path, *, command: str = "", num_cells: int = 0) -> Path:
    """Writes `compare.html` into the folder of a grid and returns its path.

    Args:
        comparison: what was found.
        out: the folder of the grid.
        command: that made it, to be shown.
        num_cells: of the grid.

    Example:
        >>> import tempfile
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     write_page(Comparison("greedy/correct", ()), Path(folder)).name
        'compare.html'
    """
    from jinja2 import Environment

    template = Environment(autoescape=True, trim_blocks=True, lstrip_blocks=True).from_string(
        _TEMPLATE.read_text(encoding="utf-8")
    )
    rows = comparison.rows
    path = out / "compare.html"
    html = template.render(
        name=comparison.name or "comparison",
        metric=comparison.metric,
        prompts=comparison.evaluated_on.prompts,
        goal=comparison.goal,
        rows=[_shown(row) for row in rows],
        scores=_lanes(rows, [row.after for row in rows]),
        differences=_lanes(rows, [row.difference for row in rows], zero=True),
        extra=list(rows[0].end) if rows else [],
        missing=dict(comparison.missing),
        shares=comparison.shared,
        command=command,
        num_cells=num_cells,
        num_finished=sum(len(row.seeds) for row in rows),
        num_comparisons=sum(row.p_value is not None for row in rows),
    )
    path.write_text(html, encoding="utf-8")
    return path


def _shown(row: Row) -> dict[str, Any]:
    """A row as texts."""
    extra = [f"{number(row.start.get(name))} → {number(row.end.get(name))}" for name in row.end]
    return {
        "variant": row.variant,
        "before": number(row.before),
        "after": number(row.after.mean),
        "after_interval": interval(row.after),
        "difference": "" if row.difference is None else number(row.difference.mean, "+.3f"),
        "difference_interval": interval(row.difference),
        "p": "" if row.p_value is None else chance(row.p_value),
        "star": row.distinguishable,
        "per_second": "" if row.per_second is None else number(row.per_second.mean, "+.3g"),
        "per_second_difference": (
            "" if row.per_second_difference is None else number(row.per_second_difference.mean, "+.3g")
        ),
        "per_second_interval": interval(row.per_second_difference, ".3g"),
        "training_seconds": number(row.training_seconds, ".1f"),
        "seconds": number(row.seconds, ".0f"),
        "seeds": len(row.seeds),
        "verdict": row.verdict,
        "extra": extra,
    }


def number(value: float | None, form: str = ".3f") -> str:
    """A number as a table shows it.

    Args:
        value: or None.
        form: of the number.

    Example:
        >>> number(0.5), number(None)
        ('0.500', '-')
    """
    return "-" if value is None else format(value, form)


def interval(estimate: Estimate | None, form: str = ".3f") -> str:
    """An interval as a table shows it.

    Args:
        estimate: or None.
        form: of its ends.

    Example:
        >>> interval(None)
        ''
    """
    return "" if estimate is None else f"{format(estimate.low, form)} to {format(estimate.high, form)}"


def chance(value: float) -> str:
    """A chance with as many digits as mean something.

    Args:
        value: between 0 and 1.

    Example:
        >>> chance(0.2), chance(0.0004)
        ('0.200', '< 0.001')
    """
    return "< 0.001" if value < 0.001 else f"{value:.3f}"


def _lanes(rows: Sequence[Row], estimates: Sequence[Estimate | None], *, zero: bool = False) -> Mapping[str, Any]:
    """Intervals as places on an axis, in per cent of its width; the axis holds all of them, and 0 where that is what
    they are compared with.
    """
    found = [each for each in estimates if each is not None]
    ends = [end for each in found for end in (each.low, each.high)] + ([0.0] if zero else [])
    low, high = (min(ends), max(ends)) if ends else (0.0, 1.0)
    margin = 0.05 * (high - low) or 0.5

    def place(value: float) -> float:
        return round(_WIDTH * (value - low + margin) / (high - low + 2 * margin), 3)

    lanes = [
        {
            "variant": row.variant,
            "mean": place(each.mean),
            "low": place(each.low),
            "high": place(each.high),
            "star": row.distinguishable,
        }
        | {"text": f"{each.mean:{'+' if zero else ''}.3f} ({interval(each)})"}
        for row, each in zip(rows, estimates, strict=True)
        if each is not None
    ]
    return {
        "lanes": lanes,
        "zero": place(0.0) if zero else None,
        "low": f"{low - margin:.3f}",
        "high": f"{high + margin:.3f}",
    }
