"""Run folders that another version wrote: 0.1.0's, recorded with its code, and one of a later version."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from groupwise import load_run

RECORDED = Path(__file__).resolve().parents[1] / "golden" / "runs_0_1"


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The runs of 0.1.0, and one that says it is of 9.1.0."""
    folder = tmp_path_factory.mktemp("runs") / "of"
    shutil.copytree(RECORDED, folder)
    shutil.copytree(folder / "language", folder / "later")
    file = folder / "later" / "environment.json"
    file.write_text(file.read_text().replace('"groupwise": "0.1.0"', '"groupwise": "9.1.0"'))
    return folder


GOING_ON = {
    "resume": ("resume", "{run}"),
    "evaluate": ("evaluate", "{run}"),
    "sample": ("sample", "{run}"),
    "check": ("check", "{run}"),
    "train": ("train", "{run}", "--out", "{new}"),
    "train its file": ("train", "{run}/config.json", "--out", "{new}"),
    "start": ("train", "language", "start={run}", "--out", "{new}"),
    "compare": ("compare", "{run}", "--vary", "method=grpo,dapo", "--out", "{new}"),
}


EXPECTED = {
    "language": "was written by Groupwise 0.1.0, whose configuration and checkpoints",
    "later": "was written by Groupwise 9.1.0, and",
}
QUICK = [("language", "resume"), ("language", "compare"), ("later", "train"), ("later", "sample")]


@pytest.mark.parametrize(
    ("run", "name"),
    [
        pytest.param(run, name, marks=() if (run, name) in QUICK else pytest.mark.slow)
        for run in EXPECTED
        for name in GOING_ON
    ],
)
def test_who_goes_on_with_it_says_in_one_line_which_version_can(
    groupwise, runs: Path, tmp_path: Path, name: str, run: str
) -> None:
    words = [word.format(run=runs / run, new=tmp_path / "new") for word in GOING_ON[name]]
    ended = groupwise(*words)
    assert ended.status == 2
    [line] = ended.err.strip().splitlines()
    assert EXPECTED[run] in line
    assert line.startswith("error: ")
    assert ("go on with 0.1.0 (pip install" if run == "language" else "install 9.1.0 or later") in line
    assert not (tmp_path / "new").exists()


def test_a_comparison_is_not_continued_in_the_folder_of_another_version(groupwise, runs: Path) -> None:
    ended = groupwise(
        "compare",
        "restoration",
        *("--vary", "method=grpo,dapo", "--seeds", "2", "--out", runs / "grid"),
        *("stages.supervised.num_steps=3", "stages.grpo.num_steps=2"),
    )
    assert ended.status == 2
    assert "was written by Groupwise 0.1.0" in ended.err


@pytest.mark.parametrize("run", ["language", "restoration", "later"])
def test_the_doctor_reads_it(groupwise, runs: Path, run: str) -> None:
    ended = groupwise("doctor", runs / run)
    assert ended.status == 0
    assert "Nothing wrong found in" in ended.out


def test_the_report_shows_runs_controls_groups_and_the_comparison(groupwise, runs: Path, tmp_path: Path) -> None:
    page = tmp_path / "page.html"
    ended = groupwise("report", runs / "language", runs / "restoration", runs / "grid", "--out", page)
    assert ended.status == 0
    assert "6 runs" in ended.out
    text = page.read_text()
    for shown in ("greedy/", "restored/", "method=dapo", "rejection_sampling"):
        assert shown in text, shown


def test_a_run_of_another_version_is_loaded_as_tables(runs: Path) -> None:
    loaded = load_run(runs / "language")
    assert loaded.metrics.num_rows == len((runs / "language" / "metrics.jsonl").read_text().splitlines())
    assert "loss" in loaded.metrics.column_names
    assert loaded.rollouts.num_rows == 3
    assert loaded.summary["steps"] == json.loads((runs / "language" / "summary.json").read_text())["steps"]


def test_the_model_of_another_version_is_exported(groupwise, runs: Path, tmp_path: Path) -> None:
    ended = groupwise("export", runs / "restoration", "--out", tmp_path / "model")
    assert ended.status == 0
    assert (tmp_path / "model" / "model.safetensors").is_file()
