"""The table of results, for a text (Markdown) and for a paper (LaTeX, booktabs)."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from pathlib import Path
from statistics import stdev

from groupwise.config import ConfigError
from groupwise.report.controls import Control
from groupwise.report.results import Result, results
from groupwise.report.variants import Variant


def write_tables(variants: Sequence[Variant], folder: Path) -> list[Path]:
    """Writes `table.md` and `table.tex`.

    Args:
        folder: created where it does not exist.

    Returns:
        the two files.

    Raises:
        ConfigError: the folder cannot be written.
    """
    rows = results(variants)
    paths = []
    for name, text in (("table.md", markdown(rows)), ("table.tex", latex(rows))):
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


def markdown(rows: Sequence[Result]) -> str:
    """Returns the table of results in Markdown.

    Example:
        >>> print(markdown([Result("a|b", "greedy/correct", (0.25,), (0.5, 1.0), (), (), (), (60.0,), 10, ())]), end="")
        | variant | seeds | before | greedy/correct after | over the first | seconds |
        |---|---:|---:|---:|---:|---:|
        | a\\|b | 2 | 0.250 | **0.750 ± 0.354** | | 60 |
    """
    heads, body = _cells(rows)
    best = _best(rows)
    lines = [f"| {' | '.join(_markdown(head) for head in heads)} |", "|---" + "|---:" * (len(heads) - 1) + "|"]
    for row_index, cells in enumerate(body):
        escaped = [_markdown(cell) for cell in cells]
        if row_index in best:
            escaped[3] = f"**{escaped[3]}**"
        lines.append("| " + " | ".join(escaped) + " |")
    return re.sub(r"\|  \|", "| |", "\n".join(lines)) + "\n"


def latex(rows: Sequence[Result]) -> str:
    """Returns the table of results in LaTeX; the document has to load the package booktabs.

    Example:
        >>> print(latex([Result("a_b", "greedy/correct", (0.25,), (0.5,), (), (), (), (60.0,), 10, ())]), end="")
        \\begin{tabular}{lrrrrr}
        \\toprule
        variant & seeds & before & greedy/correct after & over the first & seconds \\\\
        \\midrule
        a\\_b & 1 & 0.250 & \\textbf{0.500} &  & 60 \\\\
        \\bottomrule
        \\end{tabular}
    """
    heads, body = _cells(rows)
    best = _best(rows)
    lines = [
        r"\begin{tabular}{l" + "r" * (len(heads) - 1) + "}",
        r"\toprule",
        " & ".join(_latex(head) for head in heads) + r" \\",
        r"\midrule",
    ]
    for row_index, cells in enumerate(body):
        escaped = [_latex(cell) for cell in cells]
        if row_index in best:
            escaped[3] = rf"\textbf{{{escaped[3]}}}"
        lines.append(" & ".join(escaped) + r" \\")
    return "\n".join([*lines, r"\bottomrule", r"\end{tabular}"]) + "\n"


def _cells(rows: Sequence[Result]) -> tuple[list[str], list[list[str]]]:
    metrics = {row.metric for row in rows if row.metric}
    after = f"{metrics.pop()} after" if len(metrics) == 1 else "after"
    heads = ["variant", "seeds", "before", after, "over the first", "seconds"]
    body = []
    for row in rows:
        seconds = row.mean("seconds")
        body.append(
            [
                row.name,
                str(len(row.after) or len(row.states)),
                _number(row.mean("before")),
                _spread(row, "after"),
                _spread(row, "differences", sign="+"),
                "" if seconds is None else f"{seconds:.0f}",
            ]
        )
        body += [
            [f"{row.name}, control {control.name}", str(len(control.after)), "", _score(control), "", ""]
            for control in row.controls
        ]
    return heads, body


def _number(value: float | None, sign: str = "") -> str:
    return "" if value is None else f"{value:{sign}.3f}" if abs(value) < 1e4 else f"{value:{sign}.4g}"


def _spread(row: Result, field: str, sign: str = "") -> str:
    deviation = row.deviation(field)
    return _number(row.mean(field), sign) + ("" if deviation is None else f" ± {_number(deviation)}")


def _best(rows: Sequence[Result]) -> list[int]:
    """Returns the numbers of the rows with the best mean after training, controls among them; none where scores are of
    different metrics or goals differ.
    """
    if len({(row.metric, row.goal) for row in rows if row.after}) != 1:
        return []
    scores = [score for row in rows for score in (row.mean("after"), *(control.score for control in row.controls))]
    choose = max if next(row.goal for row in rows if row.after) == "max" else min
    best = choose((score for score in scores if score is not None), default=None)
    return [row_index for row_index, score in enumerate(scores) if score is not None and score == best]


def _score(control: Control) -> str:
    deviation = stdev(control.after) if len(control.after) > 1 else None
    return _number(control.score) + ("" if deviation is None else f" ± {_number(deviation)}")


def _markdown(text: str) -> str:
    return re.sub(r"([\\|*_`<\[\]])", r"\\\1", " ".join(text.split()))


_SPECIAL = {"\\": r"\textbackslash{}", "~": r"\textasciitilde{}", "^": r"\textasciicircum{}", "±": r"$\pm$"} | {
    char: "\\" + char for char in "&%$#_{}"
}


def _latex(text: str) -> str:
    return "".join(_SPECIAL.get(char, char) for char in " ".join(text.split()))
