"""`compare`: a grid in processes of its own, its table, and its continuation."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from pathlib import Path

import pytest


@pytest.mark.slow
def test_a_grid_runs_continues_and_prints_intervals(groupwise, tiny_file: Path, tmp_path: Path):
    command = [
        "compare",
        tiny_file,
        "--vary",
        "method=dapo,grpo",
        "--seeds",
        1,
        "--workers",
        2,
        "--out",
        tmp_path / "grid",
    ]
    ended = groupwise(*command)
    assert ended.status == 0, ended
    assert "2 variants x 1 seed = 2 runs" in ended.out
    assert "With 2 variants no difference is called real with fewer than 3 seeds" in ended.out
    assert "95 % interval" in ended.out
    results = json.loads((tmp_path / "grid" / "results.json").read_text())
    assert [row["variant"] for row in results["rows"]] == ["method=dapo", "method=grpo"]
    assert results["rows"][1]["shares"] == ["evaluation prompts", "first samples", "weights at the start"]
    assert "method=grpo: not distinguishable at this number of seeds (1): one seed says nothing of others." in ended.out
    page = (tmp_path / "grid" / "compare.html").read_text(encoding="utf-8")
    assert "groupwise compare" in page
    assert "not distinguishable at this number of seeds" in page
    assert groupwise(*command).out.count("was finished") == 2
    # A run of the grid ends as it would have ended by itself.
    ended = groupwise("train", tiny_file, "method=grpo", "--no-controls", "--out", tmp_path / "alone")
    assert ended.status == 0, ended
    shared = tmp_path / "grid" / "method=grpo" / "seed-0" / "model" / "model.safetensors"
    assert shared.read_bytes() == (tmp_path / "alone" / "model" / "model.safetensors").read_bytes()


@pytest.mark.nightly
def test_a_comparison_that_was_killed_leaves_nobody_at_work_and_goes_on(groupwise, tiny_file: Path, tmp_path: Path):
    grid = tmp_path / "grid"
    command = [
        "compare",
        tiny_file,
        "stages.grpo.num_steps=200",
        "--vary",
        "trust.high=0.3",
        "--seeds",
        1,
        "--out",
        grid,
    ]
    first = grid / "trust.high=0.3" / "seed-0"
    process = subprocess.Popen(
        [sys.executable, "-m", "groupwise", *map(str, command)], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    until = time.monotonic() + 600
    while not (first / "checkpoints" / "step-6").exists():
        assert time.monotonic() < until
        assert process.poll() is None
        time.sleep(0.05)
    # Beside it nobody else runs the grid.
    assert "another `groupwise compare` runs this grid now" in groupwise(*command).err
    process.kill()
    process.wait()
    # No waiting: what is still at work there ends after its step, and the new process waits for that.
    ended = groupwise(*command)
    assert ended.status == 0, ended
    rows = [json.loads(line) for line in (first / "metrics.jsonl").read_text().splitlines()]
    assert [row["step"] for row in rows] == list(range(204))
    assert len(json.loads((first / "environment.json").read_text())["starts"]) == 2


@pytest.mark.nightly
def test_a_run_that_fails_is_reported_and_the_table_stands(groupwise, tiny_file: Path, tmp_path: Path):
    # The cell that trains finds a file where its evaluation would be written.
    grid = tmp_path / "grid"
    (grid / "method=grpo").mkdir(parents=True)
    (grid / "comparison.json").write_text("{}")
    (grid / "method=grpo" / "seed-0").write_text("in the way")
    ended = groupwise("compare", tiny_file, "--vary", "method=dapo,grpo", "--seeds", 1, "--out", grid)
    assert ended.status == 1
    assert "1 of 2 runs failed" in ended.out
    assert "method=grpo/seed-0 is not in the table: exit status 2" in ended.out
    assert json.loads((grid / "results.json").read_text())["missing"].keys() == {"method=grpo/seed-0"}
    (grid / "method=grpo" / "seed-0").unlink()
    assert groupwise("compare", tiny_file, "--vary", "method=dapo,grpo", "--seeds", 1, "--out", grid).status == 0


def test_every_variant_is_read_before_any_runs(groupwise, tiny_file: Path, tmp_path: Path):
    ended = groupwise("compare", tiny_file, "--vary", "method=grpo,dappo", "--out", tmp_path / "grid")
    assert ended.status == 2
    assert "did you mean dapo" in ended.err
    assert not (tmp_path / "grid").exists()


def test_a_grid_that_cannot_be_made(groupwise, tiny_file: Path, finished: Path):
    assert "write --first-seed 1 --seeds 2" in groupwise("compare", tiny_file, "--vary", "seed=1,2").err
    assert (
        "'seed=3' has no effect: a comparison runs every variant with the same seeds; write --first-seed N"
        in groupwise("compare", tiny_file, "seed=3").err
    )
    same = groupwise("compare", tiny_file, "--vary", "trust.high=0.3,.3").err
    assert "--vary: 'trust.high=0.3' and 'trust.high=.3' are the same run; leave one of them out" in same
    assert "did you mean num_steps" in groupwise("compare", tiny_file, "--vary", "train.num_stps=1,2").err
    assert "write for example --vary" in groupwise("compare", tiny_file, "--vary", "method").err
    assert "is not a comparison" in groupwise("compare", tiny_file, "--vary", "method=grpo,dapo", "--out", finished).err
