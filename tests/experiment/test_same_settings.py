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


def test_a_key_that_an_earlier_version_did_not_have_counts_as_it_is_by_default(tiny: Path, tmp_path: Path) -> None:
    """A cluster's queue starts the same command again after an update, and `resume` would go on."""
    table = load_experiment(tiny).table()
    del table["train"]["sharding"], table["optimiser"]["eps"]
    write_json(RunFolder(tmp_path).config, table)
    assert check_same_settings(load_experiment(tiny), tmp_path) == []
    with pytest.raises(ConfigError, match=r"optimiser\.eps = 0\.1 \(1e-08 there\)"):
        check_same_settings(load_experiment(tiny, ["optimiser.eps=0.1"]), tmp_path)


def test_a_run_of_another_version_is_told_as_such(tiny: Path, tmp_path: Path) -> None:
    folder = RunFolder(tmp_path)
    write_json(folder.config, {"method": "grpo"})
    write_json(folder.environment, {"starts": [{"versions": {"groupwise": "0.1.0"}}]})
    with pytest.raises(ConfigError, match=r"was written by Groupwise 0\.1\.0"):
        check_same_settings(load_experiment(tiny), tmp_path)


@pytest.mark.parametrize("part", ["stages.grpo", "controls.supervised"])
def test_a_part_of_the_run_may_take_less_memory(tiny: Path, tmp_path: Path, part: str) -> None:
    folder = RunFolder(tmp_path)
    write_json(folder.config, load_experiment(tiny, [f"{part}.set.train.micro_batch_members=4"]).table())
    (sentence,) = check_same_settings(load_experiment(tiny, [f"{part}.set.train.micro_batch_members=1"]), tmp_path)
    assert sentence.endswith("set.train.micro_batch_members = 1, where it had 4")
    with pytest.raises(ConfigError, match="its run began with other settings"):
        check_same_settings(load_experiment(tiny, [f"{part}.set.train.group_size=3"]), tmp_path)
