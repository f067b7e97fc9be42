"""The table of results, for a text (Markdown) and for a paper (LaTeX, booktabs)."""

import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import mean, stdev
from typing import Any, final

from groupwise.config import ConfigError
from groupwise.runs import Run, is_number, reward_weights, score, split_metric
from groupwise_look.report.groups import fitting, group_key, member, number, prompt_of, shortened
from groupwise_look.report.pictures import Pictures
from groupwise_look.report.results import Result, Variant, results


@final
@dataclass(frozen=True)
class Judged:
    """A variant's difference from the first one, as a comparison judges it.

    Args:
        low, high: the 95 % interval of the difference.
        p_value: corrected for all comparisons of the table; None with one seed.
        distinguishable: whether the difference is distinguishable from none.

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
    texts = {"table.md": markdown(rows, judged), "table.tex": latex(rows, judged)}
    return [write_whole(folder / name, text.encode("utf-8", "replace"), "place") for name, text in texts.items()]


def write_whole(path: Path, content: bytes, noun: str) -> Path:
    """Writes a file at once, so that a reader sees the old content or the new one, and returns its path.

    Args:
        noun: what an error asks for with `--out`.

    Raises:
        ConfigError: it cannot be written.
    """
    partial = path.with_name(f".{path.name}.partial")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        partial.write_bytes(content)
        os.replace(partial, path)
    except OSError as error:
        raise ConfigError(f"{path} cannot be written ({error.strerror}); give another {noun} with --out") from None
    return path


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
    """Returns the heads, the cells row by row, and the numbers of the rows whose difference is distinguishable from
    none.
    """
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
                _spread(row.after),
                _spread(row.differences, "+"),
                *(["", ""] if verdict is None else verdict.cells),
                "" if seconds is None else f"{seconds:.0f}",
            ]
        )
        body += [
            [f"{row.name}, control {control.name}", str(len(control.after)), "", _spread(control.after), *[""] * 4]
            for control in row.controls
        ]
    return heads, body, bold


def _number(value: float | None, sign: str = "") -> str:
    return "" if value is None else f"{value:{sign}.3f}" if abs(value) < 1e4 else f"{value:{sign}.4g}"


def _spread(values: Sequence[float], sign: str = "") -> str:
    middle = _number(mean(values), sign) if values else ""
    return f"{middle} ± {_number(stdev(values))}" if len(values) > 1 else middle


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


# The tables that a domain made at the end of a run, such as a selector beside its baselines, for the page.

MOST_TABLES, MOST_ROWS, MOST_COLUMNS, MOST_CHARACTERS = 12, 200, 24, 200


@final
@dataclass(frozen=True)
class DomainTable:
    """A table as texts; what a file holds beyond the limits of a page is left out.

    Args:
        title: one sentence.
        columns: heads of the columns.
        rows: texts, one a column.
        notes: sentences below the table.
    """

    title: str
    columns: list[str]
    rows: list[list[str]]
    notes: list[str]


def domain_tables(run: Run) -> list[DomainTable]:
    """Reads the tables of a run, those of `tables/*.json` that can be read, in the order of their files' names."""
    tables = [_table(content) for content in run.tables.values()]
    return [table for table in tables if table is not None][:MOST_TABLES]


def _table(content: Mapping[str, Any]) -> DomainTable | None:
    columns, rows, notes = content.get("columns"), content.get("rows"), content.get("notes", [])
    if not isinstance(columns, list) or not isinstance(rows, list) or not isinstance(notes, list):
        return None
    texts = [[cell_text(cell) for cell in row[:MOST_COLUMNS]] for row in rows[:MOST_ROWS] if isinstance(row, list)]
    width = min(len(columns), MOST_COLUMNS)
    return DomainTable(
        shortened(content.get("title", content.get("name", "")), 300),
        [shortened(column, MOST_CHARACTERS) for column in columns[:MOST_COLUMNS]],
        [row[:width] + [""] * (width - len(row)) for row in texts],
        [shortened(note, 600) for note in notes[:20]],
    )


def cell_text(cell: object) -> str:
    """Returns a cell for people: a number with three decimals, an interval as `mean [low, high]`, nothing as a dash.

    Example:
        >>> [cell_text(cell) for cell in (0.25, {"mean": 0.5, "low": 0.4, "high": 0.6}, None, "kNN", 3)]
        ['0.250', '0.500 [0.400, 0.600]', '–', 'kNN', '3']
    """
    if cell is None:
        return "–"
    if isinstance(cell, Mapping) and all(is_number(cell.get(name)) for name in ("mean", "low", "high")):
        return f"{_decimal(cell['mean'])} [{_decimal(cell['low'])}, {_decimal(cell['high'])}]"
    return _decimal(cell) if is_number(cell) else shortened(cell, MOST_CHARACTERS)


def _decimal(value: float) -> str:
    return (str(value) if isinstance(value, int) else f"{value:.3f}").replace("-", "\u2212")


# The completions of a run's evaluation prompts, before training and at its end, prompt by prompt.

_COMPLETION_FIELDS = ("text", "messages", "image", "demonstrations")
"""Fields that hold a completion; an evaluation records them for its first prompts, and only rewards for the others."""


def held_out(run: Run, *, text_bytes: int, picture_bytes: int) -> dict[str, Any] | None:
    """Returns the prompts of one run's evaluations as groups, whose members are the completions before and after.

    Args:
        text_bytes, picture_bytes: the bytes of the page that texts and pictures may take.

    Returns:
        the table that `browse` returns, where each member has `when` (`before` or `after`) and each group its `mode`;
        and `held`: `prompts` (a name for such prompts), the `metric` that decides, `before` and `after` (the steps of
        the two evaluations; only `before` where there was one) and `recorded` (the number of prompts of an evaluation).
        `None` where no record holds a completion.
    """
    steps = _compared_steps(run)
    metric = str((run.summary or {}).get("metric") or "")
    reward_names: dict[str, None] = {}
    groups: dict[tuple[str, str], list[tuple[str, dict[str, Any]]]] = {}
    keys: set[Any] = set()
    for when, step in steps.items():
        for record in run.records(run.evaluations[step], []):
            keys.add(group_key(record))
            if isinstance(rewards_by_name := record.get("rewards"), Mapping):
                reward_names.update(dict.fromkeys(map(str, rewards_by_name)))
            if any(record.get(field) is not None for field in _COMPLETION_FIELDS):
                groups.setdefault((str(record.get("mode", "")), str(group_key(record))), []).append((when, record))
    if not groups:
        return None
    deciding_mode, reward_name = split_metric(metric, (record for members in groups.values() for _, record in members))
    weights = _weights(run)
    pictures = Pictures(picture_bytes)

    def drawn(mode: str, key: str, records: Sequence[tuple[str, dict[str, Any]]]) -> dict[str, Any]:
        members = [
            member(record, list(reward_names), run.path, pictures)
            | {"r": _held_out_score(record, reward_name, weights), "when": when}
            for when, record in records
        ]
        return {"group": shortened(key, 80), "mode": mode, "prompt": prompt_of(records[0][1]), "members": members}

    # The prompts of the mode that decides come first.
    ordered = sorted(groups.items(), key=lambda keyed_records: keyed_records[0][0] != deciding_mode)
    browsed_groups = fitting((drawn(mode, key, records) for (mode, key), records in ordered), text_bytes)
    return {
        "parts": list(reward_names),
        "groups": browsed_groups,
        "pictures": pictures.addresses,
        "pictures_left_out": pictures.num_left_out,
        "held": {
            "prompts": run.evaluated_on.prompts,
            "metric": metric,
            "recorded": len(keys),
            "left": len(groups) - len(browsed_groups),
            **steps,
        },
    }


def _compared_steps(run: Run) -> dict[str, int]:
    """Returns the steps of the evaluation that gave the summary's `before` and of the last evaluation.

    Where no evaluation fits `before`, the one right before the first rollouts is taken, or else the first one.
    """
    steps = list(run.evaluations)
    if not steps:
        return {}
    summary = run.summary or {}
    score_by_step = dict(zip(*run.series(f"eval/{summary.get('metric')}"), strict=True))
    start_step = next(iter(run.rollouts), 1) - 1
    before = next(
        (step for step in steps if step in score_by_step and score_by_step[step] == summary.get("before")),
        start_step if start_step in steps else steps[0],
    )
    return {"before": before} if steps[-1] == before else {"before": before, "after": steps[-1]}


def _held_out_score(record: Mapping[str, Any], reward_name: str, weights: Mapping[str, float]) -> float | int | None:
    try:
        return number(score(record, reward_name, weights))
    # Somebody's code wrote the record.
    except TypeError:
        return None


def _weights(run: Run) -> dict[str, float]:
    try:
        return reward_weights(run.config)
    except (AttributeError, TypeError, ValueError):
        return {}
