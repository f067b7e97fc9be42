"""Another memory setting for a run that goes on, while a process trains in its folder."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from groupwise.config import ConfigError, read_json
from groupwise.experiment.loading import load_experiment
from groupwise.experiment.same_settings import check_same_settings
from groupwise.runs import RunFolder
from groupwise.training.run.run_folder import append_environment, locked, write_json


def test_the_folder_of_a_process_that_trains_keeps_its_lock(tiny: Path, tmp_path: Path) -> None:
    """A new `config.json` is a file without the lock of the old one: two processes would train in one folder."""
    folder = RunFolder(tmp_path)
    write_json(folder.config, load_experiment(tiny).table())
    smaller = load_experiment(tiny, ["train.micro_batch_members=1"])
    refused = pytest.raises(ConfigError, match="another process is training in it")
    with locked(folder):
        with refused:
            check_same_settings(smaller, tmp_path, patience_seconds=0.0)
        with refused, locked(folder, patience_seconds=0.0):
            pytest.fail("let in")
        assert read_json(folder.config)["train"]["micro_batch_members"] is None
    assert check_same_settings(smaller, tmp_path) == ["goes on with train.micro_batch_members = 1, where it had None"]
    assert read_json(folder.config)["train"]["micro_batch_members"] == 1


def test_a_file_that_the_command_changed_was_changed_by_nobody_else(tiny: Path, tmp_path: Path) -> None:
    folder = RunFolder(tmp_path)
    write_json(folder.config, load_experiment(tiny).table())

    def start() -> str:
        return " ".join(append_environment(folder, seed=0, device=torch.device("cpu"), num_processes=1))

    assert "was changed" not in start()
    check_same_settings(load_experiment(tiny, ["train.micro_batch_members=1"]), tmp_path)
    assert "was changed" not in start()
    write_json(folder.config, load_experiment(tiny, ["seed=3"]).table())
    assert "was changed since the start before" in start()
