"""`compare`: a grid in processes of its own, its table, and its continuation."""

from __future__ import annotations

import json
from pathlib import Path

import pytest


@pytest.mark.slow
def test_a_grid_runs_continues_and_prints_intervals(groupwise, tiny_file: Path, tmp_path: Path):
    command = ["compare", tiny_file, "--vary", "method=dapo,grpo", "--seeds", 1, "--workers", 2, "--out", tmp_path / "grid"]
    ended = groupwise(*command)
    assert ended.status == 0, ended
    assert "2 variants x 1 seeds = 2 runs" in ended.out
    assert "95 % interval" in ended.out
    results = json.loads((tmp_path / "grid" / "results.json").read_text())
    assert [row["variant"] for row in results["rows"]] == ["method=dapo", "method=grpo"]
    assert groupwise(*command).out.count("was finished") == 2


def test_every_variant_is_read_before_any_runs(groupwise, tiny_file: Path, tmp_path: Path):
    ended = groupwise("compare", tiny_file, "--vary", "method=grpo,dappo", "--out", tmp_path / "grid")
    assert ended.status == 2
    assert "did you mean dapo?" in ended.err
    assert not (tmp_path / "grid").exists()


def test_a_grid_that_cannot_be_made(groupwise, tiny_file: Path, finished: Path):
    assert "write for example --vary" in groupwise("compare", tiny_file, "--vary", "method").err
    assert "is not a comparison" in groupwise("compare", tiny_file, "--vary", "method=grpo,dapo", "--out", finished).err
