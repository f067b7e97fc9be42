"""Runs that torchrun starts again, and runs whose processes stand on two machines."""

from __future__ import annotations

import json
import os
import random
import re
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest
from safetensors.torch import load_file
from tests.integration.small import experiment, rows
from tests.integration.test_processes import ENVIRONMENT

from groupwise.cli.app import main

TORCHRUN = [sys.executable, "-m", "torch.distributed.run"]
STEPS = 12


def train_command(model: Path, run: Path, *more: str) -> list[str]:
    experiment(model)
    file = str(model.parent / "small.toml")
    settings = [f"train.num_steps={STEPS}", "checkpoint.every=2", "track.console=lines"]
    return ["train", file, *settings, *more, "--out", str(run)]


def starts(run: Path) -> list[int]:
    return [start["num_processes"] for start in json.loads((run / "environment.json").read_text())["starts"]]


def children(launcher: int) -> list[int]:
    found = []
    for folder in Path("/proc").iterdir():
        try:
            if int((folder / "stat").read_text().rpartition(")")[2].split()[1]) == launcher:
                found.append(int(folder.name))
        except (OSError, ValueError, IndexError):
            continue
    return found


def worker_of_rank(launcher: int, rank: int) -> int:
    """Returns the process of a rank below a launcher, by the environment that torchrun gave it."""
    for process in children(launcher):
        try:
            environment = Path(f"/proc/{process}/environ").read_bytes().split(b"\0")
        except OSError:
            continue
        if f"RANK={rank}".encode() in environment:
            return process
    raise AssertionError(f"no process of rank {rank} below {launcher}")


def workers(launcher: int) -> list[int]:
    """The processes of both ranks below a launcher."""
    return [worker_of_rank(launcher, rank) for rank in (0, 1)]


def lives(process: int) -> bool:
    """Tells a process from one that ended, also where nobody has asked for its status yet."""
    try:
        return Path(f"/proc/{process}/cmdline").read_bytes() != b""
    except OSError:
        return False


def wait_for_rows(run: Path, count: int, process: subprocess.Popen[str]) -> None:
    file, end = run / "metrics.jsonl", time.monotonic() + 300
    while not file.exists() or file.read_bytes().count(b"\n") < count:
        assert process.poll() is None, process.communicate()
        assert time.monotonic() < end, "the run makes no steps"
        time.sleep(0.01)


@pytest.mark.nightly
def test_torchrun_starts_a_killed_process_again_and_the_run_goes_on(gpt2: Path, tmp_path: Path) -> None:
    run = tmp_path / "run"
    arguments = train_command(gpt2, run, "--resume")
    launcher = [*TORCHRUN, "--standalone", "--nproc-per-node=2", "--max-restarts=1", "-m", "groupwise"]
    process = subprocess.Popen(
        [*launcher, *arguments], env=ENVIRONMENT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    wait_for_rows(run, 5, process)
    os.kill(worker_of_rank(process.pid, 1), signal.SIGKILL)
    out, err = process.communicate(timeout=300)
    assert process.returncode == 0, err[-3000:]
    assert re.search(r"resumed at step \d+", out)
    assert [row["step"] for row in rows(run)] == list(range(STEPS + 1))
    assert starts(run) == [2, 2]


@pytest.mark.nightly
def test_shards_killed_at_random_moments_end_as_if_they_had_not_been(gpt2: Path, tmp_path: Path) -> None:
    """One of two processes is killed, then both with their launcher, then the launcher alone."""
    draw = random.Random(0)
    launcher = [*TORCHRUN, "--standalone", "--nproc-per-node=2", "-m", "groupwise"]
    settings = ["train.sharding=full", "reference.kind=ema", "divergence.kind=k3", "divergence.beta=0.1"]
    settings += ["checkpoint.every=1", "domain.model.lora.r=2", "domain.model.lora.dropout=0.2"]

    def started(run: Path) -> subprocess.Popen[str]:
        command = [*launcher, *train_command(gpt2, run, *settings), "--resume"]
        return subprocess.Popen(command, env=ENVIRONMENT, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)

    untouched, run = tmp_path / "untouched", tmp_path / "run"
    process = started(untouched)
    assert process.wait(timeout=300) == 0, process.communicate()[1][-3000:]
    for num_rows, victims in ((2, "one"), (5, "all"), (8, "launcher")):
        process = started(run)
        wait_for_rows(run, num_rows, process)
        ranks = workers(process.pid)
        time.sleep(draw.uniform(0, 0.3))
        for victim in {"one": ranks[1:], "all": [process.pid, *ranks], "launcher": [process.pid]}[victims]:
            os.kill(victim, signal.SIGKILL)
        assert process.wait(timeout=600) != 0, victims
        end = time.monotonic() + 600
        while any(lives(rank) for rank in ranks):
            assert time.monotonic() < end, f"{victims}: a process trains on without its launcher"
            time.sleep(0.1)
    process = started(run)
    assert process.wait(timeout=300) == 0, process.communicate()[1][-3000:]
    assert starts(run) == [2] * 4
    assert rows(run) == rows(untouched)
    for name in ("model.safetensors", "config.json"):
        assert (run / "model" / name).read_bytes() == (untouched / "model" / name).read_bytes()
    newest = [folder / "checkpoints" / f"step-{STEPS}" / "shards" for folder in (run, untouched)]
    shards = [{path.name: load_file(path) for path in folder.iterdir()} for folder in newest]
    assert len(shards[0]) == 2
    assert set(shards[0]) == set(shards[1])
    for name, tensors in shards[0].items():
        assert set(tensors) == set(shards[1][name])
        assert all(tensor.equal(shards[1][name][key]) for key, tensor in tensors.items())
    assert not list(run.rglob("*.partial-*"))


def free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return listener.getsockname()[1]


def launcher_of_one_machine(port: int, *more: str) -> list[str]:
    """The command of one of two launchers with a process each, which meet at a port of the loopback."""
    meeting = ["--rdzv-backend=c10d", f"--rdzv-endpoint=127.0.0.1:{port}", "--rdzv-id=groupwise"]
    return [*TORCHRUN, "--nnodes=2", "--nproc-per-node=1", "--local-addr=127.0.0.1", *meeting, *more, "-m", "groupwise"]


@pytest.mark.nightly
def test_two_machines_train_one_run(gpt2: Path, tmp_path: Path) -> None:
    """Two launchers on the loopback, which meet as those of two machines do."""
    run = tmp_path / "run"
    arguments = train_command(gpt2, run, "--resume")
    command = [*launcher_of_one_machine(free_port()), *arguments]
    processes = [
        subprocess.Popen(command, env=ENVIRONMENT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        for _ in range(2)
    ]
    outputs = [process.communicate(timeout=300) for process in processes]
    assert [process.returncode for process in processes] == [0, 0], outputs
    assert sum(f"step {STEPS}/{STEPS} " in out for out, _ in outputs) == 1
    assert starts(run) == [2]


@pytest.mark.nightly
def test_a_machine_whose_launcher_was_killed_comes_back(gpt2: Path, tmp_path: Path) -> None:
    run, port = tmp_path / "run", free_port()
    # So long that the run is still there when the new launcher comes.
    slow = "domain.rewards.digits.path=tests.integration.small:slow"
    command = [*launcher_of_one_machine(port, "--max-restarts=3"), *train_command(gpt2, run, slow, "--resume")]
    environment = {**ENVIRONMENT, "TORCH_DISABLE_SHARE_RDZV_TCP_STORE": "1"}

    def started() -> subprocess.Popen[str]:
        return subprocess.Popen(command, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)

    # The first launcher holds the store through which all meet, and stays.
    launchers = [started()]
    try:
        end = time.monotonic() + 600
        with socket.socket() as probe:
            while probe.connect_ex(("127.0.0.1", port)):
                assert time.monotonic() < end
                time.sleep(0.1)
        launchers.append(started())
        wait_for_rows(run, 4, launchers[0])
        for process in (*children(launchers[1].pid), launchers[1].pid):
            os.kill(process, signal.SIGKILL)
        launchers.append(started())
        for launcher in (launchers[0], launchers[2]):
            assert launcher.wait(timeout=300) == 0, launcher.communicate()[1][-3000:]
    finally:
        for launcher in launchers:
            launcher.terminate()
    assert starts(run) == [2, 2]
    assert [row["step"] for row in rows(run)] == list(range(STEPS + 1))


def test_another_run_in_the_folder_is_refused_with_the_key_that_differs(
    gpt2: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    run = tmp_path / "run"
    run.mkdir()
    arguments = train_command(gpt2, run)
    from groupwise import load_experiment

    recorded = load_experiment(arguments[1]).table()
    (run / "config.json").write_text(json.dumps(recorded))
    monkeypatch.setattr(sys, "argv", ["groupwise", *arguments, "--resume"])
    with pytest.raises(SystemExit) as ended:
        main()
    assert ended.value.code not in (0, None)
    message = " ".join(capsys.readouterr().err.split())
    assert f"its run began with other settings: train.num_steps = {STEPS} (2 there)" in message
    assert (run / "config.json").read_text() == json.dumps(recorded)


@pytest.mark.slow
def test_a_run_goes_on_with_less_memory(
    gpt2: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Memory ran out; what a pass takes may change, and is what the folder says from then on."""
    run = tmp_path / "run"
    run.mkdir()
    arguments = train_command(gpt2, run)
    from groupwise import load_experiment

    recorded = load_experiment(
        arguments[1], {"train": {"num_steps": STEPS}, "checkpoint": {"every": 2}, "track": {"console": "lines"}}
    ).table()
    (run / "config.json").write_text(json.dumps(recorded))
    monkeypatch.setattr(sys, "argv", ["groupwise", *arguments, "train.micro_batch_members=1", "--resume"])
    with pytest.raises(SystemExit) as ended:
        main()
    output = capsys.readouterr()
    assert ended.value.code in (0, None), output.err
    assert "goes on with train.micro_batch_members = 1, where it had None" in " ".join(output.out.split())
    assert json.loads((run / "config.json").read_text())["train"]["micro_batch_members"] == 1
    assert (run / "summary.json").is_file()
    assert "has ended" not in output.out
    with pytest.raises(SystemExit) as ended:
        main()
    assert ended.value.code in (0, None)
    assert "This run has ended: nothing is left to do." in capsys.readouterr().out
