from __future__ import annotations

import re
import shutil
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest

from groupwise.config import ConfigError
from groupwise.report.results import Result, results
from groupwise.report.tables import latex, markdown, write_tables
from groupwise.report.variants import Variant, group_runs
from groupwise.runs import Run

NASTY = r"a_b & 50% of $x$ #1 {c} \d ~ ^ |e| <script>`*"


def row(name: str, *after: float, differences: tuple[float, ...] = ()) -> Result:
    return Result(name, "greedy/right", (0.25,), after, (), (), differences, (61.0, 63.0), 10, ("finished",))


def test_the_best_is_bold_and_ties_are_all_best() -> None:
    lines = markdown([row("a", 0.5, 0.7), row("b", 0.6, differences=(0.1, -0.3)), row("c", 0.1)]).splitlines()
    assert lines[2] == "| a | 2 | 0.250 | **0.600 ± 0.141** | | 62 |"
    assert lines[3] == "| b | 1 | 0.250 | **0.600** | -0.100 ± 0.283 | 62 |"
    assert "**" not in lines[4]


def test_where_less_is_better_the_lowest_is_bold() -> None:
    rows = [replace(row("a", 0.5, 0.7), goal="min"), replace(row("b", 0.2), goal="min")]
    lines = markdown(rows).splitlines()
    assert "**" not in lines[2]
    assert lines[3] == "| b | 1 | 0.250 | **0.200** | | 62 |"
    assert r"\textbf{0.200}" in latex(rows)
    assert "**" not in markdown([rows[0], row("c", 0.1)]), "more is better in one row, less in the other"


def test_the_goal_of_a_variant_is_its_runs(compared_runs: list[Run]) -> None:
    first_method = next(iter(group_runs(compared_runs))).runs[0].config["method"]

    def ended(run: Run, goal: str) -> Run:
        after = 0.3 if run.config["method"] == first_method else 0.6
        return replace(
            run,
            config={**run.config, "train": {**run.config.get("train", {}), "metric_goal": goal}},
            summary={**(run.summary or {}), "after": after},
        )

    for goal, best in (("min", "0.300"), ("max", "0.600")):
        bold = [
            line
            for line in markdown(results(group_runs([ended(run, goal) for run in compared_runs]))).splitlines()
            if "**" in line
        ]
        assert len(bold) == 1
        assert f"**{best}" in bold[0]


def test_names_are_names_in_markdown_and_in_latex() -> None:
    line = markdown([row(NASTY, 0.5)]).splitlines()[2]
    assert len(re.findall(r"(?<!\\)\|", line)) == 7, "as many cells as heads"
    assert r"\<script>" in line
    table = latex([row(NASTY, 0.5)])
    assert r"a\_b \& 50\% of \$x\$ \#1 \{c\} \textbackslash{}d \textasciitilde{} \textasciicircum{}" in table
    assert table.count(" & ") == 2 * 5


@pytest.mark.skipif(shutil.which("pdflatex") is None, reason="no LaTeX here")
def test_latex_sets_it(tmp_path: Path) -> None:
    (tmp_path / "a.tex").write_text(
        "\\documentclass{article}\\usepackage{booktabs}\\begin{document}"
        + latex([row(NASTY, 0.5, 0.6)])
        + "\\end{document}"
    )
    assert (
        subprocess.run(
            ["pdflatex", "-interaction=nonstopmode", "-halt-on-error", "a.tex"], cwd=tmp_path, capture_output=True
        ).returncode
        == 0
    )


def test_real_runs_have_a_row_a_variant(compared_runs: list[Run], tmp_path: Path) -> None:
    variants = group_runs(compared_runs)
    text, paper = (path.read_text(encoding="utf-8") for path in write_tables(variants, tmp_path / "out"))
    assert [line.split(" | ")[0] for line in text.splitlines()[2:]] == ["| grpo", "| ema"]
    for result in results(variants):
        assert f"{result.mean('after'):.3f} ± {result.deviation('after'):.3f}" in text
    assert paper.startswith(r"\begin{tabular}{lrrrrr}")
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == ["table.md", "table.tex"]


def test_a_place_that_cannot_be_written_is_said(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(ConfigError, match="cannot be written"):
        write_tables([Variant("a", (Run(Path("a"), {}, [], None, [], "finished", []),))], tmp_path / "file")
