from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest

from groupwise.config import ConfigError
from groupwise.runs import Run
from groupwise_look.report.results import Result, Variant, group_runs, results
from groupwise_look.report.tables import Judged, latex, markdown, write_tables

NASTY = r"a_b & 50% of $x$ #1 {c} \d ~ ^ |e| <script>`*"


def row(name: str, *after: float, differences: tuple[float, ...] = ()) -> Result:
    return Result(name, "greedy/right", (0.25,), after, (), (), differences, (61.0, 63.0), 10, ("finished",))


def test_only_a_difference_that_is_told_from_none_is_bold() -> None:
    rows = [row("a", 0.5, 0.7), row("b", 0.6, differences=(0.1, -0.3)), row("c", 0.9, 0.9, differences=(0.3, 0.3))]
    judged = {"b": Judged(-0.4, 0.2, 0.6, False), "c": Judged(0.2, 0.4, 0.0001, True)}
    lines = markdown(rows, judged).splitlines()
    assert lines[2] == "| a | 2 | 0.250 | 0.600 ± 0.141 | | | | 62 |"
    assert lines[3] == "| b | 1 | 0.250 | 0.600 | -0.100 ± 0.283 | -0.400 to +0.200 | 0.600 | 62 |"
    assert lines[4] == r"| c | 2 | 0.250 | 0.900 ± 0.000 | **+0.300 ± 0.000** | +0.200 to +0.400 | \<0.001 | 62 |"
    assert "± is the standard deviation over seeds" in lines[-1]
    assert "**" not in markdown(rows), "nothing was judged"


def test_the_paper_has_what_the_page_has() -> None:
    rows = [row("a", 0.5, 0.7), row("b", 0.6, 0.8, differences=(0.1, 0.1)), row("c", 0.9, differences=(0.4,))]
    judged = {"b": Judged(0.05, 0.15, 0.012, True), "c": Judged(0.3, 0.5, None, False)}
    table = latex(rows, judged)
    assert (
        r"b & 2 & 0.250 & 0.700 $\pm$ 0.141 & \textbf{+0.100 $\pm$ 0.000} & +0.050 to +0.150 & 0.012 & 62 \\" in table
    )
    assert r"c & 1 & 0.250 & 0.900 & +0.400 & +0.300 to +0.500 &  & 62 \\" in table
    assert table.count(r"\textbf") == 1
    assert r"\multicolumn{8}{p{.9\linewidth}}{\footnotesize $\pm$ is the standard deviation over seeds" in table


def test_names_are_names_in_markdown_and_in_latex() -> None:
    line = markdown([row(NASTY, 0.5)]).splitlines()[2]
    assert len(re.findall(r"(?<!\\)\|", line)) == 9, "as many cells as heads"
    assert r"\<script>" in line
    table = latex([row(NASTY, 0.5)])
    assert r"a\_b \& 50\% of \$x\$ \#1 \{c\} \textbackslash{}d \textasciitilde{} \textasciicircum{}" in table
    assert table.count(" & ") == 2 * 7


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
    assert [line.split(" | ")[0] for line in text.splitlines()[2:-2]] == ["| grpo", "| ema"]
    for result in results(variants):
        assert f"{result.mean('after'):.3f} ± {result.deviation('after'):.3f}" in text
    assert paper.startswith(r"\begin{tabular}{lrrrrrrr}")
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == ["table.md", "table.tex"]


def test_a_place_that_cannot_be_written_is_said(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(ConfigError, match="cannot be written"):
        write_tables([Variant("a", (Run(Path("a"), {}, [], None, [], "finished", []),))], tmp_path / "file")
