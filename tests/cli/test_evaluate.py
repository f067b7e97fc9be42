"""`evaluate`: a run's model, or a model folder on an experiment's prompts."""

from __future__ import annotations

import json
from pathlib import Path

import pytest


def test_a_run_is_evaluated_as_it_was_at_its_end(groupwise, finished: Path):
    ended = groupwise("evaluate", finished, "--json")
    assert ended.status == 0, ended
    found = json.loads(ended.out)
    rows = [json.loads(line) for line in (finished / "metrics.jsonl").read_text().splitlines()]
    measured = {name.removeprefix("eval/"): value for name, value in rows[-1].items() if name.startswith("eval/")}
    assert found["metrics"] == pytest.approx(measured)


def test_a_model_folder_needs_an_experiment(groupwise, finished: Path, tiny_file: Path):
    assert "--experiment NAME" in groupwise("evaluate", finished / "model").err
    ended = groupwise("evaluate", finished / "model", "--experiment", tiny_file)
    assert ended.status == 0, ended
    assert "greedy/correct" in ended.out
    assert ended.out.count("prompt  ") == 3


def test_a_model_that_was_not_kept_is_named(groupwise, finished: Path):
    assert "has no 3 model; it has final" in groupwise("evaluate", finished, "--which", 3).err
