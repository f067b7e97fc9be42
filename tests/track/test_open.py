"""The configured trackers really write what their programs read, under the same names."""

from __future__ import annotations

import json
import os
import struct
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from groupwise.config import ConfigError
from groupwise.track import MetricsFile, TrackConfig, Trackers, WandbConfig, open_trackers

pytest.importorskip("tensorboard")

IMAGE = torch.arange(48, dtype=torch.uint8).reshape(4, 4, 3)
MEMBERS: list[dict[str, Any]] = [
    {"prompt": "2 + 2 =", "text": "4 | four", "rewards": {"correct": 1.0}, "image": IMAGE},
    {"prompt": "2 + 2 =", "text": "5", "rewards": {"correct": 0.0}, "image": IMAGE[:, :, 0]},
]


def opened(folder: Path, **config: Any) -> Trackers:
    first_step = config.pop("first_step", 0)
    return open_trackers(
        TrackConfig(console="none", **config),
        folder,
        total_steps=9,
        score=None,
        resolved={"seed": 0},
        first_step=first_step,
    )


def follow(trackers: Trackers, steps: range) -> None:
    for step in steps:
        trackers.members(step, "rollouts", MEMBERS, {})
        trackers.metrics(step, {"reward": step / 4, "eval/greedy/correct": 0.5})


def events(folder: Path) -> Any:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    # Unlimited: it keeps a sample otherwise, four images for instance.
    found = EventAccumulator(str(folder / "tensorboard"), size_guidance={"scalars": 0, "images": 0, "tensors": 0})
    found.Reload()
    return found


@pytest.fixture(autouse=True)
def no_wandb_left() -> Iterator[None]:
    """W&B's process ends with the test: later ones fork, and programs started here would join it."""
    yield
    # Not imported for the tests without it: that takes a second.
    if wandb := sys.modules.get("wandb"):
        wandb.teardown()
    assert "WANDB_SERVICE" not in os.environ


def rows(path: Path) -> Iterator[dict[str, Any]]:
    """Yields the logged rows of an offline file, as far as it goes: protobuf in the framing of LevelDB's log."""
    from wandb.proto import wandb_internal_pb2 as messages

    data, place, fragments = path.read_bytes(), 7, b""
    while place + 7 <= len(data):
        left = 32768 - place % 32768
        _, length, kind = struct.unpack_from("<IHB", data, place)
        if left < 7 or kind == 0:  # What is left of a block is padding.
            place += left
            continue
        fragments += data[place + 7 : place + 7 + length]
        place += 7 + length
        if kind in (1, 4):  # whole, or the last part
            record = messages.Record()
            record.ParseFromString(fragments)
            fragments = b""
            if record.WhichOneof("record_type") == "history":
                items = record.history.item
                row = {item.key or ".".join(item.nested_key): json.loads(item.value_json) for item in items}
                yield {"_step": record.history.step.num, **row}


def logged(folder: Path, last: int) -> list[dict[str, Any]]:
    """The rows of every offline file of a run, in the order in which W&B would receive them; its own process may still
    be writing the last one.
    """
    end = time.monotonic() + 600
    while True:
        found = [row for path in sorted((folder / "wandb").glob("offline-run-*/run-*.wandb")) for row in rows(path)]
        if (found and found[-1]["_step"] >= last) or time.monotonic() > end:
            return found
        time.sleep(0.1)


def test_tensorboard_files_can_be_read_back(tmp_path: Path) -> None:
    trackers = opened(tmp_path, tensorboard=True)
    follow(trackers, range(1, 3))
    trackers.members(2, "evaluation", [], {"grid": IMAGE})
    trackers.close()
    found = events(tmp_path)
    assert [(event.step, event.value) for event in found.Scalars("reward")] == [(1, 0.25), (2, 0.5)]
    text = found.Tensors("rollouts/members/text_summary")[0].tensor_proto.string_val[0].decode()
    assert text.splitlines()[2] == r'| 2 + 2 = | 4 \| four | {"correct": 1.0} |'
    assert found.Images("evaluation/grid")[0].width == 4
    assert [event.step for event in found.Images("rollouts/image")] == [1, 2]


def test_a_resumed_run_writes_no_step_twice_into_tensorboard(tmp_path: Path) -> None:
    follow(opened(tmp_path, tensorboard=True), range(6))  # killed after step 5: nothing is closed
    trackers = opened(tmp_path, tensorboard=True, first_step=4)  # its checkpoint is of step 3
    follow(trackers, range(4, 8))
    trackers.close()
    found = events(tmp_path)
    assert [event.step for event in found.Scalars("reward")] == list(range(8))
    assert [event.step for event in found.Images("rollouts/image")] == list(range(8))


@pytest.mark.slow
def test_wandb_writes_an_offline_run_under_the_same_names(tmp_path: Path) -> None:
    trackers = opened(tmp_path, wandb=WandbConfig(), tensorboard=True)
    follow(trackers, range(1, 3))
    trackers.members(2, "evaluation", [], {"grid": IMAGE})
    trackers.metrics(2, {"reward": 0.5})
    assert trackers.names == ["TensorboardTracker", "WandbTracker"]
    trackers.close()
    found = logged(tmp_path, last=2)
    assert [(row["_step"], row["reward"]) for row in found] == [(1, 0.25), (2, 0.5)]
    own = {
        name.removesuffix("/text_summary")
        for kind in ("scalars", "images", "tensors")
        for name in events(tmp_path).Tags()[kind]
    }
    assert {name.split(".")[0] for row in found for name in row if not name.startswith("_")} == own
    media = next((tmp_path / "wandb").glob("offline-run-*/files/media"))
    table = json.loads(next(media.glob("table/rollouts/members_1_*.json")).read_text())
    assert table["columns"] == ["prompt", "text", "rewards"]
    assert table["data"][0] == ["2 + 2 =", "4 | four", '{"correct": 1.0}']
    from PIL import Image

    picture = np.asarray(Image.open(next(media.glob("images/evaluation/grid_2_*.png"))).convert("RGB"))
    assert np.array_equal(picture, IMAGE.numpy())


@pytest.mark.slow
def test_a_resumed_run_goes_on_in_the_same_wandb_run(tmp_path: Path) -> None:
    trackers = opened(tmp_path, wandb=WandbConfig())
    follow(trackers, range(6))
    trackers.close()
    file = MetricsFile(tmp_path / "metrics.jsonl")
    for step in range(4):
        file.append({"step": step, "stage": "grpo", "reward": step / 4, "kl": float("nan")})
    trackers = opened(tmp_path, wandb=WandbConfig(), first_step=4)
    follow(trackers, range(4, 8))
    trackers.close()
    found = logged(tmp_path, last=7)
    assert [(row["_step"], row["reward"]) for row in found] == [(step, step / 4) for step in (*range(6), *range(8))]
    assert "stage" not in found[6]
    files = list((tmp_path / "wandb").glob("offline-run-*/run-*.wandb"))
    assert len(files) == 2
    assert len({path.name for path in files}) == 1


@pytest.mark.slow
def test_wandb_that_cannot_start_is_said_before_anything_is_computed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("NETRC", str(tmp_path / "netrc"))
    monkeypatch.delenv("WANDB_API_KEY", raising=False)
    with pytest.raises(
        ConfigError,
        match=(
            r'track.wandb.mode = "online": Weights & Biases could not start: .*write `wandb login` first, or'
            r' .*"offline"'
        ),
    ):
        opened(tmp_path, wandb=WandbConfig(mode="online"))


def test_other_processes_track_nothing(tmp_path: Path) -> None:
    assert (
        open_trackers(TrackConfig(), tmp_path, total_steps=1, score=None, resolved={}, first_process=False).names == []
    )
