"""The command itself, in processes of its own: several joined by torchrun, killed, interrupted."""

from __future__ import annotations

import json
import multiprocessing
import os
import random
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
from tests.integration.small import experiment, rows, weights

from groupwise import train
from groupwise.cli.app import main

FORK = multiprocessing.get_context("fork")
ROOT = Path(__file__).resolve().parents[2]
ENVIRONMENT = {**os.environ, "OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1", "PYTHONPATH": str(ROOT)}
# Everything with a random draw or a sum in it, in fp64. A large eps: Adam divides small gradients by small moments,
# which would magnify rounding.
SETTINGS = [
    "domain.model.dtype=float64",
    "entropy=0.01",
    "optimiser.eps=1e-2",
    "train.prompts_per_step=5",
    "train.updates_per_batch=2",
    "train.minibatches=2",
    "train.micro_batch_members=3",
    "track.console=lines",
]
FITTED = ["train.micro_batch_members=auto", "train.memory_limit_gib=100"]


def command(*arguments: str | Path, processes: int = 1) -> list[str]:
    start = (
        [sys.executable]
        if processes == 1
        else [sys.executable, "-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={processes}"]
    )
    return [*start, "-m", "groupwise", *map(str, arguments)]


def in_two_processes(file: Path, *settings: str, folder: Path) -> subprocess.CompletedProcess[str]:
    """A run in `two`, to its end."""
    started = command("train", file, *settings, "--out", "two", processes=2)
    return subprocess.run(
        started, cwd=folder, env=ENVIRONMENT, capture_output=True, text=True, timeout=300, check=False
    )


def numbers(row: Mapping[str, Any], leave: Sequence[str]) -> dict[str, float]:
    return {name: value for name, value in row.items() if isinstance(value, int | float) and name not in leave}


@pytest.mark.parametrize(
    "more",
    [
        pytest.param(["divergence.kind=k3", "divergence.beta=0.1"], marks=pytest.mark.nightly),
        pytest.param(["method=dapo", "domain.model.lora.r=2", *FITTED], marks=pytest.mark.slow),
    ],
)
def test_two_processes_train_as_one_and_one_of_them_speaks(gpt2: Path, tmp_path: Path, more: list[str]) -> None:
    settings = [*SETTINGS, *more]
    one = train(experiment(gpt2, *settings), out=tmp_path / "one").folder.path
    done = in_two_processes(gpt2.parent / "small.toml", *settings, folder=tmp_path)
    assert done.returncode == 0, done.stderr[-3000:]
    assert "Warning" not in done.stderr
    assert len(re.findall(r"step 2/2 ", done.stdout)) == 1
    assert done.stdout.count("Run folder: two") == 1
    found = weights(tmp_path / "two", 2)
    for name, value in weights(one, 2).items():
        torch.testing.assert_close(found[name], value, rtol=0, atol=1e-12)
    # Padding depends on how members are cut, and that on how many a process has. Whether a rescored log-prob equals the
    # sampler's to the last bit depends on who stands beside a member. Places of groups are counted in each process.
    leave = (
        *("padding_share/update", "padding_share/sampling", "on_policy_fraction", "micro_batch_members"),
        "batch/place_correlation",
    )
    for mine, theirs in zip(rows(one), rows(tmp_path / "two"), strict=True):
        assert numbers(theirs, leave) == pytest.approx(numbers(mine, leave), rel=1e-9, abs=1e-10)
    environment = json.loads((tmp_path / "two" / "environment.json").read_text())
    assert [start["num_processes"] for start in environment["starts"]] == [2]


@pytest.mark.slow
def test_an_error_of_one_process_is_told_and_not_what_the_others_see_of_it(gpt2: Path, tmp_path: Path) -> None:
    experiment(gpt2)
    settings = ["domain.rewards.digits.path=tests.integration.small:fails_on_the_second", "track.console=lines"]
    settings += ["domain.evaluation.greedy=true", "domain.evaluation.sampled=false"]
    done = in_two_processes(gpt2.parent / "small.toml", *settings, folder=tmp_path)
    assert done.returncode == 1
    assert "error in process 1: reward 'digits' raised KeyError: 'gone'" in done.stderr
    assert "Connection" not in done.stderr
    assert (
        "an error ended the run after step 0; `torchrun ... -m groupwise resume two --run-code` goes on from step 0"
        in done.stdout
    )


# Dropout in the adapter, an average that follows the policy, several updates: everything that a checkpoint must bring
# back.
LONG = [
    "divergence.kind=k3",
    "divergence.beta=0.1",
    "reference.kind=ema",
    "domain.model.lora.r=2",
    "domain.model.lora.dropout=0.2",
    "train.num_steps=14",
    "train.updates_per_batch=2",
    "train.evaluate_every=5",
    "checkpoint.every=3",
    "track.rollouts_every=1",
]


def everything(run: Path) -> dict[str, Any]:
    """What must not depend on a run's having been cut off."""
    return {
        "model": (run / "model" / "model.safetensors").read_bytes(),
        "weights": {name: value.tolist() for name, value in weights(run, 14).items()},
        "metrics": rows(run),
        "rollouts": {path.name: path.read_text() for path in sorted((run / "rollouts").iterdir())},
        "checkpoints": sorted(path.name for path in (run / "checkpoints").iterdir()),
    }


def say(*arguments: str) -> None:
    """The command in a forked process, which spares the seconds of starting one."""
    # A suite under nohup hands an ignored SIGHUP on, which a run is right to ignore as well.
    signal.signal(signal.SIGHUP, signal.SIG_DFL)
    sys.argv = ["groupwise", *arguments]
    # Tests that run in a process of their own have no terminal to speak to.
    sys.stdout = open(os.devnull, "w")  # noqa: SIM115
    main()


def forked(*arguments: str) -> Any:
    process = FORK.Process(target=say, args=arguments)
    process.start()
    return process


def spawned(*arguments: str) -> subprocess.Popen[bytes]:
    environment = {**os.environ, **ENVIRONMENT}
    return subprocess.Popen(command(*arguments), env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


HOLD = "train.callbacks=['tests.integration.small:hold']"


@pytest.fixture
def held(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The file that keeps a run with `HOLD` from its end."""
    file = tmp_path / "hold"
    file.touch()
    monkeypatch.setenv("GROUPWISE_TEST_HOLD", str(file))
    return file


def signalled(process: Any, run: Path, number: signal.Signals, num_rows: int, delay: float) -> None:
    """Sends a signal a moment after the run wrote its `num_rows`-th row, if it is still there then."""
    while not (run / "metrics.jsonl").exists() or (run / "metrics.jsonl").read_bytes().count(b"\n") < num_rows:
        assert exit_code(process) is None, "it ended before its first rows"
        time.sleep(0.005)
    time.sleep(delay)
    if exit_code(process) is None:
        os.kill(process.pid, number)


def exit_code(process: Any) -> int | None:
    return process.poll() if isinstance(process, subprocess.Popen) else process.exitcode


def ended(process: Any) -> int:
    process.wait() if isinstance(process, subprocess.Popen) else process.join()
    code = exit_code(process)
    assert code is not None
    return code


@pytest.fixture(scope="module")
def untouched(qwen: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    return everything(train(experiment(qwen, *LONG), out=tmp_path_factory.mktemp("untouched") / "run").folder.path)


@pytest.mark.parametrize(
    ("start", "is_resume_a_verb"),
    [
        pytest.param(forked, True, marks=pytest.mark.slow),
        *(
            pytest.param(*each, marks=pytest.mark.nightly)
            for each in ((forked, False), (spawned, False), (spawned, True))
        ),
    ],
)
def test_killed_at_random_moments_and_resumed(
    qwen: Path, tmp_path: Path, untouched: dict[str, Any], held: Path, start: Callable[..., Any], is_resume_a_verb: bool
) -> None:
    experiment(qwen)
    run, draw = tmp_path / "run", random.Random(0)
    first = ["train", str(qwen.parent / "small.toml"), *LONG, HOLD, "--out", str(run)]
    again = ["resume", str(run)] if is_resume_a_verb else [*first, "--resume"]
    process = start(*(first if is_resume_a_verb else again))
    for num_rows in (1, 5, 9):
        signalled(process, run, signal.SIGKILL, num_rows, draw.uniform(0, 0.1))
        assert ended(process) == -signal.SIGKILL
        if num_rows == 9:
            held.unlink()
        process = start(*again)
    assert ended(process) == 0
    assert everything(run) == untouched


@pytest.mark.parametrize(
    ("number", "status"),
    [
        pytest.param(signal.SIGINT, 130, marks=pytest.mark.slow),
        *(pytest.param(*each, marks=pytest.mark.nightly) for each in ((signal.SIGTERM, 143), (signal.SIGHUP, 129))),
    ],
)
def test_an_interrupt_saves_and_says_how_to_go_on(
    qwen: Path, tmp_path: Path, untouched: dict[str, Any], held: Path, number: signal.Signals, status: int
) -> None:
    experiment(qwen)
    run = tmp_path / "run"
    process = forked("train", str(qwen.parent / "small.toml"), *LONG, HOLD, "--out", str(run))
    signalled(process, run, number, 5, 0.0)
    held.unlink()
    assert ended(process) == status
    saved = max(int(path.name.removeprefix("step-")) for path in (run / "checkpoints").iterdir())
    assert 4 <= saved == rows(run)[-1]["step"] < 14
    assert not (run / "summary.json").exists()
    assert ended(forked("resume", str(run))) == 0
    # Its own checkpoint is one more than the untouched run has, and may have pushed out an older one.
    assert {**everything(run), "checkpoints": []} == {**untouched, "checkpoints": []}


@pytest.mark.parametrize(
    ("number", "status"),
    [pytest.param(None, 0, marks=pytest.mark.slow), pytest.param(signal.SIGINT, 130, marks=pytest.mark.nightly)],
)
def test_a_reader_that_goes_away_ends_the_display_and_not_the_run(
    qwen: Path, tmp_path: Path, number: signal.Signals | None, status: int
) -> None:
    experiment(qwen)
    run = tmp_path / "run"
    process = subprocess.Popen(
        command("train", qwen.parent / "small.toml", *LONG, "--out", run, "track.console=lines"),
        env=ENVIRONMENT,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    assert process.stderr is not None
    while "step 3/14" not in process.stdout.readline():
        assert process.poll() is None
    process.stdout.close()
    # As Ctrl-C does to both sides of a pipe.
    if number is not None:
        process.send_signal(number)
    said = process.stderr.read()
    assert process.wait(180) == status
    assert (
        said.strip()
        == "tracker ConsoleTracker failed and is switched off; training goes on: BrokenPipeError: nobody reads standard"
        " output any more"
    )
    assert (run / "summary.json").exists() == (number is None)
    assert rows(run)[-1]["step"] == max(
        int(path.name.removeprefix("step-")) for path in (run / "checkpoints").iterdir()
    )


@pytest.mark.nightly
def test_a_second_interrupt_ends_at_once_and_says_from_where_the_run_goes_on(qwen: Path, tmp_path: Path) -> None:
    experiment(qwen)
    run = tmp_path / "run"
    # A step long enough that the second one still finds it.
    settings = [
        *LONG,
        "train.prompts_per_step=16",
        "train.group_size=64",
        "checkpoint.every=2",
        "track.console=lines",
        "train.num_steps=400",
    ]
    process = subprocess.Popen(
        command("train", str(qwen.parent / "small.toml"), *settings, "--out", str(run)),
        env=ENVIRONMENT,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    signalled(process, run, signal.SIGINT, 4, 0.0)
    time.sleep(0.005)
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=600)
    assert (process.returncode, err) == (130, "")
    assert re.search(rf"ended at once, after step \d+; `groupwise resume {run} --run-code` goes on from step \d+", out)
