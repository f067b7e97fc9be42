"""A run killed in the middle of thinning its records and resumed has the same files as one that was never touched, and
nothing besides.
"""

from __future__ import annotations

import os
import shutil
import signal
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
from tests.faults.processes import in_a_process
from tests.training.toy import ToyDomain, job, recipe, supervised
from torch import Tensor

from groupwise.checkpoint import CheckpointConfig
from groupwise.domain.protocol import Evaluation, Samples
from groupwise.streams import Streams
from groupwise.track import TrackConfig
from groupwise.training.job import Job
from groupwise.training.run import run_folder
from groupwise.training.run.launch import resume, train


class Drawing(ToyDomain):
    """The toy with a picture of every member, and two of every evaluation."""

    def describe(self, samples: Samples, rows: Tensor) -> list[dict[str, Any]]:
        return [
            {**record, "image": torch.full((2, 2), 17 * place, dtype=torch.uint8)}
            for place, record in enumerate(super().describe(samples, rows))
        ]

    def evaluate(self, *, streams: Streams) -> Evaluation:
        found = super().evaluate(streams=streams)
        grey = torch.full((2, 2), int(255 * found.metrics["accuracy"]), dtype=torch.uint8)
        return Evaluation(found.metrics, found.records, {"before": grey, "after": grey})


def long_job() -> Job:
    stages = supervised(num_steps=6, evaluate_every=1), recipe(num_steps=24, evaluate_every=1, rate=0.2)
    track = TrackConfig(console="none", rollouts_every=1, num_rollouts=4, keep_records=2)
    return job(*stages, domain=lambda device: Drawing(), track=track, checkpoint=CheckpointConfig(every=5))


def start(path: Path, number: int = 0) -> None:
    """Trains; the process is killed when it has removed half of the `number`-th folder that thinning removes."""
    left = iter(range(number - 1, -1, -1))

    def fatal(folder: Path, **named: Any) -> None:
        if next(left, -1) == 0:
            assert not folder.with_name(folder.name + ".jsonl").exists()
            files = sorted(file for file in folder.rglob("*") if file.is_file())
            for file in files[: len(files) // 2]:
                file.unlink()
            os.kill(os.getpid(), signal.SIGKILL)
        original(folder, **named)

    original = shutil.rmtree
    run_folder.shutil.rmtree = fatal  # type: ignore[assignment]
    train(long_job(), path)


def go_on(path: Path) -> None:
    resume(long_job(), path)


def records(path: Path) -> dict[str, bytes | None]:
    """Everything in `rollouts/`, folders and hidden names too."""
    return {
        str(entry.relative_to(path)): entry.read_bytes() if entry.is_file() else None
        for entry in sorted((path / "rollouts").rglob("*"))
    }


@pytest.fixture(scope="module")
def untouched(tmp_path_factory: pytest.TempPathFactory) -> dict[str, bytes | None]:
    folder = tmp_path_factory.mktemp("untouched")
    assert in_a_process(start, folder / "run") == 0
    return records(folder / "run")


def names(files: Sequence[str], kind: str) -> list[str]:
    return [name for name in files if name.startswith(f"rollouts/{kind}-") and name.endswith(".jsonl")]


@pytest.mark.slow
def test_records_left_by_a_kill_are_bounded_and_whole(untouched: dict[str, bytes | None]) -> None:
    assert len(names(list(untouched), "step")) <= 4
    assert len(names(list(untouched), "evaluation")) <= 6
    assert not [name for name in untouched if Path(name).name.startswith(".")]
    # Every folder of pictures has its records.
    assert {name for name in untouched if name.count("/") == 1 and not name.endswith(".jsonl")} == {
        name.removesuffix(".jsonl") for name in untouched if name.endswith(".jsonl")
    }


@pytest.mark.slow
@pytest.mark.parametrize("number", [13, 1, 4, 30])
def test_killed_in_the_middle_of_thinning_and_resumed(
    untouched: dict[str, bytes | None], tmp_path: Path, number: int
) -> None:
    path = tmp_path / "run"
    assert in_a_process(start, path, number) == -9
    assert not [name for name in records(path) if Path(name).name.startswith(".")]
    assert in_a_process(go_on, path) == 0
    assert records(path) == untouched
