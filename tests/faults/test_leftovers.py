"""A kill leaves nothing behind that the next start does not take away, and the folder of a run killed at once is one
that the same command accepts.
"""

from __future__ import annotations

import os
import shutil
import signal
from pathlib import Path
from typing import Any

import pytest
from tests.faults.processes import fatal, in_a_process
from tests.marks import slow_but
from tests.training.toy import ToyDomain, job, recipe

from groupwise.checkpoint import CheckpointConfig
from groupwise.track import Trackers
from groupwise.training.job import Job
from groupwise.training.run import loop, run_folder
from groupwise.training.run.launch import resume, train


def with_models_and_a_control() -> Job:
    control = recipe("random", num_steps=2)
    stage = recipe(num_steps=3, evaluate_every=1, prompts_per_step=2, group_size=2)
    return job(stage, checkpoint=CheckpointConfig(every=1, model_every=1), controls={"random": [control]})


def start(path: Path, place: Any = None, name: str = "", number: int = 0) -> None:
    if place is not None:
        setattr(place, name, fatal(getattr(place, name), number))
    train(with_models_and_a_control(), path)


def go_on(path: Path, place: Any = None, name: str = "", number: int = 0) -> None:
    if place is not None:
        setattr(place, name, fatal(getattr(place, name), number))
    resume(with_models_and_a_control(), path)


def hidden(path: Path) -> list[str]:
    return [str(entry.relative_to(path)) for entry in path.rglob(".*")]


@pytest.mark.parametrize("number", slow_but((1,), (1, 2, 3)))
def test_a_model_half_written_is_gone_after_a_resume(tmp_path: Path, number: int) -> None:
    path = tmp_path / "run"
    assert in_a_process(start, path, ToyDomain, "save", number) == -9
    assert hidden(path), "the kill hit no write"
    assert in_a_process(go_on, path) == 0
    assert hidden(path) == []
    assert {"models", "model"} <= {entry.name for entry in path.iterdir()}


def kill_in(function: Any) -> Any:
    def call(*arguments: Any, **named: Any) -> None:
        os.kill(os.getpid(), signal.SIGKILL)

    return call


def removing(path: Path) -> None:
    """Goes on, and is killed where a folder that was set aside would be deleted."""
    shutil.rmtree = kill_in(shutil.rmtree)
    go_on(path)


@pytest.mark.slow
def test_a_control_that_was_set_aside_is_gone_after_a_resume(tmp_path: Path) -> None:
    path = tmp_path / "run"
    assert in_a_process(start, path, loop, "run_stage", 2) == -9
    assert in_a_process(removing, path) == -9
    assert [name.split(".partial")[0] for name in hidden(path)] == ["controls/.random"]
    assert in_a_process(go_on, path) == 0
    assert hidden(path) == []
    assert (path / "controls" / "random" / "summary.json").is_file()


@pytest.mark.slow
def test_what_a_kill_after_the_summary_left_is_gone_after_a_resume(tmp_path: Path) -> None:
    path = tmp_path / "run"
    assert in_a_process(start, path, run_folder, "write_json", 4) == -9
    assert (path / "summary.json").is_file()
    assert (path / "checkpoints" / "start").is_dir()
    assert in_a_process(removing, path) == -9
    assert hidden(path)
    assert in_a_process(go_on, path) == 0
    assert hidden(path) == []
    assert not (path / "checkpoints" / "start").exists()


def before_the_name(path: Path) -> None:
    """Starts, and is killed after the configuration is on the disk and before it has its name."""
    os.link = kill_in(os.link)
    start(path)


def test_killed_before_the_configuration_has_its_name(tmp_path: Path) -> None:
    path = tmp_path / "run"
    assert in_a_process(before_the_name, path) == -9
    assert [name.split(".partial")[0] for name in hidden(path)] == [".config.json"]
    assert in_a_process(start, path) == 0
    assert hidden(path) == []


def test_a_damaged_manifest_falls_back_to_the_checkpoint_before_and_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "run"
    assert in_a_process(start, path, ToyDomain, "save", 3) == -9
    newest = max((path / "checkpoints").glob("step-*"), key=lambda each: int(each.name.removeprefix("step-")))
    (newest / "manifest.json").write_text('{"step": 4, "score": null, "best": false, "files": []}')
    said: list[str] = []
    monkeypatch.setattr(Trackers, "note", lambda self, text: said.append(text))
    resume(with_models_and_a_control(), path)
    assert [text for text in said if str(newest) in text] == [
        f"{newest} is not whole (a write was cut off, or it was changed afterwards) and is not used"
    ]
    assert any(text.startswith("resumed at step") for text in said)
    assert (path / "summary.json").is_file()
