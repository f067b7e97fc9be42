"""`train`: what it says at the end, and what lies in the run folder."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from groupwise.cli import output
from groupwise.track.tracker import depends_on_machine, read_metrics


def test_the_end_of_a_run(groupwise, tiny_file: Path, tmp_path: Path):
    ended = groupwise("train", tiny_file, "trust.low=0.1", "--seed", 5, "--out", tmp_path / "run", "--threads", 1)
    assert (ended.status, ended.err) == (0, ""), ended
    assert "method dapo+edited, seed 5" in ended.out
    assert "Held-out greedy/reward: " in ended.out
    assert "control supervised, same start and same time" in ended.out
    assert ended.out.count("before  ") == ended.out.count("after   ") == 3
    assert f"Run folder: {tmp_path / 'run'}" in ended.out
    assert "Try next:" in ended.out
    summary = json.loads((tmp_path / "run" / "summary.json").read_text())
    assert (summary["metric"], summary["steps"], summary["seed"]) == ("greedy/reward", 5, 5)


@pytest.mark.slow
def test_a_saved_configuration_repeats_the_run(groupwise, finished: Path, tmp_path: Path):
    ended = groupwise("train", finished / "config.json", "--out", tmp_path / "again", "--no-controls")
    assert ended.status == 0, ended
    assert "control" not in ended.out
    weights = [(folder / "model" / "model.safetensors").read_bytes() for folder in (finished, tmp_path / "again")]
    assert weights[0] == weights[1]
    rows = [
        [
            {name: value for name, value in row.items() if not depends_on_machine(name)}
            for row in read_metrics(folder / "metrics.jsonl")
        ]
        for folder in (finished, tmp_path / "again")
    ]
    assert rows[0] == rows[1]


def test_several_processes_need_one_name(groupwise, tiny_file: Path, monkeypatch):
    for name, value in {"WORLD_SIZE": "2", "RANK": "0", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "1"}.items():
        monkeypatch.setenv(name, value)
    ended = groupwise("train", tiny_file)
    assert ended.status == 2
    assert "write --out runs/NAME" in ended.err


def test_another_process_leaves_the_word_to_the_first_and_says_what_is_its_own(groupwise, tiny_file: Path, monkeypatch):
    monkeypatch.setenv("RANK", "1")
    waited = []
    monkeypatch.setattr(output.time, "sleep", waited.append)
    ended = groupwise("train", tiny_file, "seed=-1")
    assert (ended.status, ended.out) == (2, "")
    assert ended.err.startswith("error in process 1: ")
    assert waited == [output.SECONDS_FOR_THE_FIRST]
