"""`report`: the page, figures and table from the command line."""

from __future__ import annotations

import json
import shutil
from pathlib import Path


def test_a_run_gets_its_page_in_its_folder(groupwise, finished: Path, tmp_path: Path):
    run = shutil.copytree(finished, tmp_path / "run")
    ended = groupwise("report", run, "--table", "--figures")
    assert ended.status == 0
    assert f"1 run: {run}/report.html" in ended.out
    assert (run / "report.html").read_bytes().startswith(b"<!doctype html>")
    assert "| variant | seeds |" in ended.out
    assert (run / "table.tex").read_text().startswith(r"\begin{tabular}")
    assert (run / "figures" / "gains.pdf").read_bytes().startswith(b"%PDF")
    assert "no figure variance_reduction: no run smoothed its ratios; train one with method=ema" in ended.out


def test_a_comparison_is_judged_as_compare_judges_it_and_its_warm_up_is_no_variant(
    groupwise, finished: Path, tmp_path: Path
):
    grid = tmp_path / "grid"
    scores = {"beta=0.3": 0.25, "beta=0.6": 0.75, "warm-up-0f": 0.0}
    for name, score in scores.items():
        for seed in range(3):
            run = shutil.copytree(finished, grid / name / f"seed-{seed}")
            for file, changes in (("config.json", {"seed": seed}), ("summary.json", {"after": score})):
                (run / file).write_text(json.dumps({**json.loads((run / file).read_text()), **changes}))
            shutil.rmtree(run / "rollouts")
            (run / "rollouts").mkdir()
    (grid / "comparison.json").write_text(json.dumps({"variants": {"beta=0.3": [], "beta=0.6": []}}))
    assert groupwise("report", grid, "--table").status == 0
    rows = [line.split(" | ") for line in (grid / "table.md").read_text().splitlines()[2:-2]]
    rows = [cells for cells in rows if ", control " not in cells[0]]
    assert [cells[0] for cells in rows] == ["| beta=0.3", "| beta=0.6"]
    # Three seeds that agree: the interval is the mean, and p the least that three seeds can have.
    assert rows[1][4:7] == ["**+0.500 ± 0.000**", "+0.500 to +0.500", "0.031"]
    assert r"\textbf{+0.500 $\pm$ 0.000} & +0.500 to +0.500 & 0.031" in (grid / "table.tex").read_text()
    assert "warm-up" not in (grid / "report.html").read_text()


def test_several_runs_get_one_page_where_the_command_was_given(groupwise, finished: Path, tmp_path: Path):
    one, other = (shutil.copytree(finished, tmp_path / name) for name in ("one", "other"))
    (other / "summary.json").unlink()
    ended = groupwise("report", one, other)
    assert "2 runs: report.html" in ended.out
    assert f"{other}: summary.json is not there: the run has not ended" in ended.out
    assert (tmp_path / "report.html").is_file()
    assert groupwise("report", one, other, "--out", "deep/page.html").status == 0
    assert (tmp_path / "deep" / "page.html").is_file()
