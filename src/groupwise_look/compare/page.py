"""The page of a comparison: one HTML file without scripts, which loads nothing from the network."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from groupwise_look.compare.comparison import Comparison, Row
from groupwise_look.compare.statistics import Estimate

_TEMPLATE = Path(__file__).with_name("page.html")
_WIDTH = 100.0


def write_page(comparison: Comparison, out: Path, *, command: str = "", num_cells: int = 0) -> Path:
    """Writes `compare.html` into the folder of a grid and returns its path.

    Args:
        out: the folder of the grid.
        command: the command that made the comparison, for the page.
        num_cells: the number of cells of the grid.

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
        noticed=comparison.noticed,
        shares=comparison.shared,
        command=command,
        num_cells=num_cells,
        num_finished=sum(len(row.seeds) for row in rows),
        num_comparisons=sum(row.p_value is not None for row in rows),
    )
    path.write_text(html, encoding="utf-8")
    return path


def _shown(row: Row) -> dict[str, Any]:
    extra = [f"{number(row.start.get(name))} → {number(row.end.get(name))}" for name in row.end]
    return {
        "variant": row.variant,
        "before": number(row.before),
        "after": number(row.after.mean),
        "after_interval": interval(row.after),
        "difference": _signed(row.difference, "+.3f"),
        "difference_interval": interval(row.difference),
        "p": "" if row.p_value is None else chance(row.p_value),
        "star": row.distinguishable,
        "per_second": _signed(row.per_second, "+.3g"),
        "per_second_difference": _signed(row.per_second_difference, "+.3g"),
        "per_second_interval": interval(row.per_second_difference, ".3g"),
        "training_seconds": number(row.training_seconds, ".1f"),
        "seconds": number(row.seconds, ".0f"),
        "seeds": len(row.seeds),
        "verdict": row.verdict,
        "extra": extra,
    }


def _signed(estimate: Estimate | None, form: str) -> str:
    return "" if estimate is None else format(estimate.mean, form)


def number(value: float | None, form: str = ".3f") -> str:
    """Formats a number for a table; None is a dash.

    Args:
        form: the format of the number.

    Example:
        >>> number(0.5), number(None)
        ('0.500', '-')
    """
    return "-" if value is None else format(value, form)


def interval(estimate: Estimate | None, form: str = ".3f") -> str:
    """Formats an interval for a table; None is an empty text.

    Args:
        form: the format of the interval's ends.

    Example:
        >>> interval(None)
        ''
    """
    return "" if estimate is None else f"{format(estimate.low, form)} to {format(estimate.high, form)}"


def chance(value: float) -> str:
    """Formats a probability to three digits.

    Args:
        value: between 0 and 1.

    Example:
        >>> chance(0.2), chance(0.0004)
        ('0.200', '< 0.001')
    """
    return "< 0.001" if value < 0.001 else f"{value:.3f}"


def _lanes(rows: Sequence[Row], estimates: Sequence[Estimate | None], *, zero: bool = False) -> Mapping[str, Any]:
    """Returns the places of intervals on an axis, in per cent of its width. The axis covers all intervals, and 0 where
    `zero` asks for it.
    """
    drawn = [estimate for estimate in estimates if estimate is not None]
    ends = [end for estimate in drawn for end in (estimate.low, estimate.high)] + ([0.0] if zero else [])
    low, high = (min(ends), max(ends)) if ends else (0.0, 1.0)
    margin = 0.05 * (high - low) or 0.5

    def place(value: float) -> float:
        return round(_WIDTH * (value - low + margin) / (high - low + 2 * margin), 3)

    lanes = [
        {
            "variant": row.variant,
            "mean": place(estimate.mean),
            "low": place(estimate.low),
            "high": place(estimate.high),
            "star": row.distinguishable,
            "text": f"{estimate.mean:{'+' if zero else ''}.3f} ({interval(estimate)})",
        }
        for row, estimate in zip(rows, estimates, strict=True)
        if estimate is not None
    ]
    return {
        "lanes": lanes,
        "zero": place(0.0) if zero else None,
        "low": f"{low - margin:.3f}",
        "high": f"{high + margin:.3f}",
    }
