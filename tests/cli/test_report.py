"""`report`: the page, figures and table from the command line."""

from __future__ import annotations

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


def test_several_runs_get_one_page_where_the_command_was_given(groupwise, finished: Path, tmp_path: Path):
    one, other = (shutil.copytree(finished, tmp_path / name) for name in ("one", "other"))
    (other / "summary.json").unlink()
    ended = groupwise("report", one, other)
    assert "2 runs: report.html" in ended.out
    assert f"{other}: summary.json is not there: the run has not ended" in ended.out
    assert (tmp_path / "report.html").is_file()
    assert groupwise("report", one, other, "--out", "deep/page.html").status == 0
    assert (tmp_path / "deep" / "page.html").is_file()


def test_a_folder_that_is_no_run_is_an_error(groupwise, tmp_path: Path):
    assert "no such folder: nowhere" in groupwise("report", "nowhere").err
    (tmp_path / "empty").mkdir()
    ended = groupwise("report", "empty")
    assert ended.status == 2
    assert "holds no run" in ended.err
