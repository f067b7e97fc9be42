"""The table of results, for a text (Markdown) and for a paper (LaTeX, booktabs)."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import stdev
from typing import final

from groupwise.config import ConfigError
from groupwise.report.controls import Control
from groupwise.report.results import Result, results
from groupwise.report.variants import Variant


@final
@dataclass(frozen=True)
class Judged:
    """A variant's difference from the first one, as a comparison judges it.

    Args:
        low, high: the 95 % interval of the difference.
        p_value: corrected for all comparisons of the table; None with one seed.
        distinguishable: whether the difference is told from none.

    Example:
        >>> Judged(0.1, 0.3, 0.01, True).cells
        ['+0.100 to +0.300', '0.010']
    """

    low: float
    high: float
    p_value: float | None
    distinguishable: bool

    @property
    def cells(self) -> list[str]:
        """The interval and the p-value as texts."""
        p = "" if self.p_value is None else "<0.001" if self.p_value < 0.001 else f"{self.p_value:.3f}"
        return [f"{_number(self.low, '+')} to {_number(self.high, '+')}", p]


_NOTE = (
    "± is the standard deviation over seeds; the interval (95 %) and p are those of the difference from the first"
    " variant, p corrected for all comparisons of the table (Holm); bold: told from none at 5 % over the whole table."
)


def write_tables(variants: Sequence[Variant], folder: Path, judged: Mapping[str, Judged] | None = None) -> list[Path]:
    """Writes `table.md` and `table.tex`.

    Args:
        folder: created where it does not exist.
        judged: name of a variant -> its difference from the first; without it nothing is bold.

    Returns:
        the two files.

    Raises:
        ConfigError: the folder cannot be written.
    """
    rows = results(variants)
    paths = []
    for name, text in (("table.md", markdown(rows, judged)), ("table.tex", latex(rows, judged))):
        path = folder / name
        partial = folder / f".{name}.partial"
        try:
            folder.mkdir(parents=True, exist_ok=True)
            partial.write_text(text, encoding="utf-8", errors="replace")
            os.replace(partial, path)
        except OSError as error:
            raise ConfigError(f"{path} cannot be written ({error.strerror}); give another place with --out") from None
        paths.append(path)
    return paths


def markdown(rows: Sequence[Result], judged: Mapping[str, Judged] | None = None) -> str:
    """Returns the table of results in Markdown, with a line on how to read it.

    Args:
        judged: name of a variant -> its difference from the first.

    Example:
        >>> result = Result("a|b", "greedy/correct", (0.25,), (0.5, 1.0), (), (), (0.2, 0.4), (60.0,), 10, ())
        >>> print(markdown([result], {"a|b": Judged(0.1, 0.5, 0.01, True)}).partition(" ±")[0])
        | variant | seeds | before | greedy/correct after | over the first | interval | p | seconds |
        |---|---:|---:|---:|---:|---:|---:|---:|
        | a\\|b | 2 | 0.250 | 0.750
    """
    heads, body, bold = _cells(rows, judged or {})
    lines = [f"| {' | '.join(_markdown(head) for head in heads)} |", "|---" + "|---:" * (len(heads) - 1) + "|"]
    for row_index, cells in enumerate(body):
        escaped = [_markdown(cell) for cell in cells]
        if row_index in bold:
            escaped[_BOLD] = f"**{escaped[_BOLD]}**"
        lines.append("| " + " | ".join(escaped) + " |")
    return re.sub(r"\|  (?=\|)", "| ", "\n".join(lines)) + f"\n\n{_NOTE}\n"


def latex(rows: Sequence[Result], judged: Mapping[str, Judged] | None = None) -> str:
    """Returns the table of results in LaTeX, with a line on how to read it; the document has to load the package
    booktabs.

    Args:
        judged: name of a variant -> its difference from the first.

    Example:
        >>> result = Result("a_b", "greedy/correct", (0.25,), (0.5,), (), (), (0.2,), (60.0,), 10, ())
        >>> print("".join(latex([result], {"a_b": Judged(0.1, 0.3, 0.01, True)}).splitlines(True)[:6]), end="")
        \\begin{tabular}{lrrrrrrr}
        \\toprule
        variant & seeds & before & greedy/correct after & over the first & interval & p & seconds \\\\
        \\midrule
        a\\_b & 1 & 0.250 & 0.500 & \\textbf{+0.200} & +0.100 to +0.300 & 0.010 & 60 \\\\
        \\bottomrule
    """
    heads, body, bold = _cells(rows, judged or {})
    lines = [
        r"\begin{tabular}{l" + "r" * (len(heads) - 1) + "}",
        r"\toprule",
        " & ".join(_latex(head) for head in heads) + r" \\",
        r"\midrule",
    ]
    for row_index, cells in enumerate(body):
        escaped = [_latex(cell) for cell in cells]
        if row_index in bold:
            escaped[_BOLD] = rf"\textbf{{{escaped[_BOLD]}}}"
        lines.append(" & ".join(escaped) + r" \\")
    note = rf"\multicolumn{{{len(heads)}}}{{p{{.9\linewidth}}}}{{\footnotesize {_latex(_NOTE)}}} \\"
    return "\n".join([*lines, r"\bottomrule", note, r"\end{tabular}"]) + "\n"


_BOLD = 4
"""The column of the difference from the first variant."""


def _cells(rows: Sequence[Result], judged: Mapping[str, Judged]) -> tuple[list[str], list[list[str]], list[int]]:
    """Returns the heads, the cells row by row, and the numbers of the rows whose difference is told from none."""
    metrics = {row.metric for row in rows if row.metric}
    after = f"{metrics.pop()} after" if len(metrics) == 1 else "after"
    heads = ["variant", "seeds", "before", after, "over the first", "interval", "p", "seconds"]
    body: list[list[str]] = []
    bold = []
    for row in rows:
        seconds, verdict = row.mean("seconds"), judged.get(row.name)
        if verdict is not None and verdict.distinguishable:
            bold.append(len(body))
        body.append(
            [
                row.name,
                str(len(row.after) or len(row.states)),
                _number(row.mean("before")),
                _spread(row, "after"),
                _spread(row, "differences", sign="+"),
                *(["", ""] if verdict is None else verdict.cells),
                "" if seconds is None else f"{seconds:.0f}",
            ]
        )
        body += [
            [f"{row.name}, control {control.name}", str(len(control.after)), "", _score(control), "", "", "", ""]
            for control in row.controls
        ]
    return heads, body, bold


def _number(value: float | None, sign: str = "") -> str:
    return "" if value is None else f"{value:{sign}.3f}" if abs(value) < 1e4 else f"{value:{sign}.4g}"


def _spread(row: Result, field: str, sign: str = "") -> str:
    deviation = row.deviation(field)
    return _number(row.mean(field), sign) + ("" if deviation is None else f" ± {_number(deviation)}")


def _score(control: Control) -> str:
    deviation = stdev(control.after) if len(control.after) > 1 else None
    return _number(control.score) + ("" if deviation is None else f" ± {_number(deviation)}")


def _markdown(text: str) -> str:
    return re.sub(r"([\\|*_`<\[\]])", r"\\\1", " ".join(text.split()))


_SPECIAL = {
    "\\": r"\textbackslash{}",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "±": r"$\pm$",
    "<": r"$<$",
} | {char: "\\" + char for char in "&%$#_{}"}


def _latex(text: str) -> str:
    return "".join(_SPECIAL.get(char, char) for char in " ".join(text.split()))
