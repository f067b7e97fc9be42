"""A run as tables and objects."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch

import groupwise
from groupwise.config import ConfigError
from groupwise.experiment.loaded_run import LoadedRun
from groupwise.streams import Streams

CHANGES = [
    *(
        "domain.data.num_train=16",
        "domain.data.num_held_out=4",
        "domain.demonstrations.num=8",
        "stages.warm_up.num_steps=1",
        "stages.grpo.num_steps=3",
    ),
    *(
        "train.prompts_per_step=2",
        "train.group_size=3",
        "controls=null",
        "track.console=none",
    ),
]


@pytest.fixture(scope="module")
def loaded(tmp_path_factory: pytest.TempPathFactory) -> LoadedRun:
    folder = tmp_path_factory.mktemp("loaded") / "run"
    groupwise.train(groupwise.load_experiment("language", CHANGES), out=folder)
    return groupwise.load_run(folder)


def test_metrics_are_the_rows_of_the_file(loaded: LoadedRun) -> None:
    rows = [json.loads(line) for line in (loaded.run.path / "metrics.jsonl").read_text().splitlines()]
    frame = loaded.metrics.to_pandas()
    assert frame["step"].max() == 4
    (last,) = [row for row in rows if row["step"] == 4 and "reward" in row]
    assert frame[frame["step"] == 4]["reward"].iloc[-1] == pytest.approx(last["reward"])


def test_members_have_their_step_and_their_rewards(loaded: LoadedRun) -> None:
    members = loaded.rollouts.to_pylist()
    steps = [member["step"] for member in members]
    assert set(steps) == set(loaded.run.rollouts)
    assert all(steps.count(step) == 6 for step in set(steps))
    assert steps
    assert all("rewards.correct" in member for member in members)
    assert loaded.evaluations.num_rows > 0


def test_the_domain_of_a_loaded_run_has_the_trained_weights(loaded: LoadedRun) -> None:
    domain = loaded.domain()
    with torch.no_grad():
        metrics = domain.evaluate(streams=Streams(loaded.config["seed"])).metrics
    assert metrics[loaded.summary["metric"]] == pytest.approx(loaded.summary["after"])
    assert loaded.config["name"] == "language"


def test_types_that_differ_in_a_column_are_json(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text("{}")
    (tmp_path / "metrics.jsonl").write_text('{"step": 1, "odd": 1}\n{"step": 2, "odd": "two"}\n{"step": 3}\n')
    run = groupwise.load_run(tmp_path)
    assert run.metrics.column("odd").to_pylist() == ["1", '"two"', None]
    assert run.summary == {}
    with pytest.raises(ConfigError, match="has no model yet"):
        _ = run.model_folder


def test_a_folder_that_is_no_path_is_refused_in_words() -> None:
    with pytest.raises(ConfigError, match="folder: an object of type int was given; write the path of a run folder"):
        groupwise.load_run(3)  # pyright: ignore[reportArgumentType]
