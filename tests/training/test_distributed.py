"""Real processes joined by gloo give what one process gives, in fp64 to rounding, and only the first one speaks."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist
from safetensors.torch import load_file
from tests.learner.one_process import sharding
from tests.training import distributed_worker
from tests.training.step.test_memory import remembered
from tests.training.toy import ToyDomain, job, recipe

from groupwise.config import ConfigError
from groupwise.runs import RunFolder
from groupwise.statistics import Mean, Total
from groupwise.training.distributed import World, connect, disconnect
from groupwise.training.run.launch import train
from groupwise.training.run.loop import _shared_settings, agreed_folder, check_same_start
from groupwise.training.run.run_folder import locked, write_json

ROOT = Path(__file__).resolve().parents[2]


def launch(folder: Path, size: int, *tasks: str, status: int = 0) -> str:
    """Runs the worker's tasks, one after the other, in `size` processes started by torchrun; returns what they printed.
    A start takes far longer than a task.
    """
    command = [
        sys.executable,
        "-m",
        "torch.distributed.run",
        "--standalone",
        f"--nproc-per-node={size}",
        "-m",
        "tests.training.distributed_worker",
        str(folder),
        *tasks,
    ]
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": os.pathsep.join([str(ROOT), str(ROOT / "src")])}
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=600, check=False)
    assert done.returncode == status, done.stderr[-3000:]
    return done.stdout + done.stderr


@pytest.mark.slow
def test_two_processes_give_what_one_gives_and_only_the_first_speaks(tmp_path: Path) -> None:
    printed = launch(tmp_path, 2, "updates", "whole", "worn")
    check_updates(tmp_path / "updates", 2, tmp_path)
    check_whole(tmp_path / "whole", printed)
    check_worn(printed)


@pytest.mark.nightly
def test_four_processes_give_the_gradients_of_one(tmp_path: Path) -> None:
    launch(tmp_path, 4, "updates")
    check_updates(tmp_path / "updates", 4, tmp_path)


def check_updates(folder: Path, size: int, single_process: Path) -> None:
    distributed_worker.updates(single_process)
    expected, actual = (
        load_file(single_process / "updates-1.safetensors"),
        load_file(folder / f"updates-{size}.safetensors"),
    )
    assert set(expected) == set(actual)
    for name, value in expected.items():
        torch.testing.assert_close(
            actual[name], value, rtol=1e-11, atol=1e-13, msg=lambda text, name=name: f"{name}: {text}"
        )
    one, several = (
        json.loads((place / f"updates-{count}.json").read_text())
        for place, count in ((single_process, 1), (folder, size))
    )
    for case, numbers in one.items():
        assert several[case]["taken"] == numbers["taken"] > 0
        # Padding depends on how members are cut; so does whether a rescored log-prob equals the sampler's to the last
        # bit. All else is the update's own.
        compared = {
            name: value
            for name, value in numbers["metrics"].items()
            if name not in ("padding_share/update", "on_policy_fraction")
        }
        assert {name: several[case]["metrics"][name] for name in compared} == pytest.approx(
            compared, rel=1e-9, abs=1e-12
        ), case
    loads = several["token_mean"]["members"]
    assert len({tuple(load) for load in loads}) > 1, "the loads of this test are meant to be unequal"


def check_whole(folder: Path, printed: str) -> None:
    assert printed.count("step 3/3") == 1
    rows = [json.loads(line) for line in (folder / "run" / "metrics.jsonl").read_text().splitlines()]
    assert [row["step"] for row in rows] == [0, 1, 2, 3]
    assert json.loads((folder / "run" / "summary.json").read_text())["steps"] == 3
    # What both of them sampled, in the order of the step.
    groups = [
        json.loads(line)["group"] for line in (folder / "run" / "rollouts" / "step-1.jsonl").read_text().splitlines()
    ]
    assert groups == sorted(groups)
    assert set(groups) == set(range(5))


def check_worn(printed: str) -> None:
    """A fault of another process is reported by the first."""
    assert re.search(r"the processes have waited \d+ s for process 1\b", printed), printed
    assert (
        printed.count("step 1: reward 'right': timeout for 3 of 16 members, on process 1; later ones are only counted")
        == 1
    )
    assert printed.count("timeout") == 1


@pytest.mark.nightly
def test_rewards_remember_what_all_processes_saw_and_processes_agree_on_the_sizes_of_passes(tmp_path: Path) -> None:
    launch(tmp_path, 2, "memory", "passes")
    check_memory(tmp_path / "memory", tmp_path / "one process")
    check_passes(tmp_path / "passes", tmp_path / "one process with memory")


def check_memory(folder: Path, single_process: Path) -> None:
    distributed_worker.memory(single_process)
    one, two = remembered(single_process), remembered(folder)
    assert one == two
    assert one["scale"]["high"] > one["scale"]["low"]


def check_passes(folder: Path, single_process: Path) -> None:
    """Process 1 has no memory for what process 0 takes, and an update without memory is made again; both end with its
    sizes, and with the weights of one process that has memory enough.
    """
    distributed_worker.passes(single_process)
    sizes = [json.loads((folder / f"sizes-{rank}.json").read_text()) for rank in (0, 1)]
    assert sizes[0] == sizes[1]
    assert 1 <= sizes[0]["sampling"] <= 3
    assert 1 <= sizes[0]["update"] <= 3
    one, two = (
        json.loads((place / "run" / "metrics.jsonl").read_text().splitlines()[-1]) for place in (single_process, folder)
    )
    for name in ("grad_norm", "reward", "eval/ode/bright"):
        assert two[name] == pytest.approx(one[name], rel=1e-5), name


def test_alone_every_sum_is_the_identity() -> None:
    values = {"a": Mean.ratio(2.0, 1.0), "b": Total.of(torch.tensor(3.0))}
    assert World().sum_statistics(values) == values
    assert World().gather({"x": 1}) == [{"x": 1}]


@pytest.mark.parametrize("count", [1, 5, 8])
def test_shares_cover_a_list_once(count: int) -> None:
    assert [place for rank in range(4) for place in World(rank, 4).share(count)] == list(range(count))


@pytest.mark.slow
def test_nobody_waits_for_a_process_whose_program_caught_the_error_of_its_run(tmp_path: Path) -> None:
    printed = launch(tmp_path, 2, "left", status=1)
    assert "process 1 has left the run: CUDA out of memory" in printed


@pytest.mark.nightly
def test_a_program_that_has_joined_the_processes_itself_keeps_its_group_and_is_told_who_left(tmp_path: Path) -> None:
    """Each process names another folder: that of the first one counts."""
    printed = launch(tmp_path, 2, "joined", status=1)
    assert printed.count("2 processes are still joined") == 2
    assert "process 1 has left the run: CUDA out of memory" in printed
    assert (tmp_path / "joined" / "0" / "summary.json").is_file()
    assert not (tmp_path / "joined" / "1").exists()


def test_a_group_of_the_program_stays_and_has_to_be_the_one_that_the_environment_says(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with sharding():
        disconnect(connect(torch.device("cpu")))
        assert dist.is_initialized()
        with monkeypatch.context() as on_gpus:
            on_gpus.setattr(dist, "get_backend_config", lambda: "cuda:nccl")
            disconnect(connect(torch.device("cpu")))  # one process alone sums nothing
            on_gpus.setattr(dist, "get_world_size", lambda: 2)
            on_gpus.setenv("WORLD_SIZE", "2")
            with pytest.raises(ConfigError, match=r'write init_process_group\("cpu:gloo'):
                connect(torch.device("cpu"))
        monkeypatch.setenv("WORLD_SIZE", "2")
        with pytest.raises(
            ConfigError, match="as rank 0 of 1, and the environment says rank 0 of 2; set RANK = 0, WORLD_"
        ):
            train(job(recipe(num_steps=1)), "nowhere")


class Two:
    """One of two processes."""

    size = 2

    def __init__(self, other: Callable[[Any], Any], *, first: bool = True) -> None:
        self._other, self._first = other, first

    def gather(self, value: Any) -> list[Any]:
        return [value, self._other(value)] if self._first else [self._other(value), value]


def test_processes_that_were_given_different_settings_are_told_the_key() -> None:
    with pytest.raises(ConfigError, match=r"process 1 was given other settings than process 0: seed = 3 \(0 there\)"):
        agreed_folder(job(), RunFolder(Path("runs")), Two(lambda value: ("another", {"seed": 3})))  # type: ignore[arg-type]


def test_processes_may_track_differently_and_hold_objects_of_other_hashes(tmp_path: Path) -> None:
    """A tracker or a callback of the first process alone, the random fingerprint that Hugging Face gives to mapped
    rows, a folder that another machine mounts elsewhere.
    """
    settings = {"seed": 0, "train": {"callbacks": ["log"]}, "stages": [{"set": {"train": {"num_threads": 2}}}]}
    whole = replace(job(), resolved={**settings, "track": {"wandb": {}}, "objects": {"data": {"hash": "1"}}})
    assert _shared_settings(whole) == settings
    there = {"seed": 0, "train": {"callbacks": []}, "stages": [{"set": {"train": {"num_threads": 1}}}]}
    second: Any = Two(lambda value: ("another", there), first=False)
    assert agreed_folder(whole, RunFolder(tmp_path), second).path == Path("another")
    (tmp_path / "config.json").touch()
    assert agreed_folder(whole, RunFolder(tmp_path), second).path == tmp_path


@pytest.mark.parametrize(("num", "backwards"), [(5, False), (4, True)])
def test_processes_that_have_read_different_prompts_are_told(num: int, *, backwards: bool) -> None:
    def read(start: Any) -> Any:
        return start[0], (num, start[1][1][::-1] if backwards else start[1][1])

    toy = ToyDomain(num_prompts=4)
    with pytest.raises(ConfigError, match=rf"process 1 has other training prompts than process 0 \({num} and 4"):
        check_same_start(toy, Two(read))  # type: ignore[arg-type]
    check_same_start(toy, Two(lambda start: start))  # type: ignore[arg-type]


@pytest.mark.nightly
def test_a_process_that_finds_the_folder_in_use_says_so_to_the_others(tmp_path: Path) -> None:
    folder = RunFolder(tmp_path / "locked" / "run")
    folder.path.mkdir(parents=True)
    write_json(folder.config, {})
    with locked(folder):
        printed = launch(tmp_path, 2, "locked", status=1)
    assert f"process 0 has left the run: run folder {folder.path}: another process is training in it" in printed
