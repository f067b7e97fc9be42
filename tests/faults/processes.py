"""Runs in processes of their own, killed for real."""

from __future__ import annotations

import faulthandler
import multiprocessing
import os
import resource
import signal
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from tests.training.toy import ToyDomain, job, recipe, supervised

from groupwise.checkpoint import CheckpointConfig, tree
from groupwise.reference import PeriodicReference
from groupwise.schedule import Linear
from groupwise.training.job import Job
from groupwise.training.run.launch import resume, train

DEADLINE_SECONDS = 1800
"""No hostile input takes a tenth of that on a quiet machine; the stack of one that does is in the message."""

MEMORY_BYTES = 4 * 2**30
"""What a command may take beside what the process has."""

FORK = multiprocessing.get_context("fork")

# The first optimiser of a process imports a second's worth of modules; forked processes inherit them.
torch.optim.AdamW([torch.nn.Parameter(torch.zeros(1))])


def staged_job(domain: Callable[[Any], Any] | None = None) -> Job:
    """Every kind of state at once: two stages, dropout, a moving reference, an adaptive beta, running statistics,
    several updates, resampling.
    """
    policy = recipe(
        "policy",
        "grpo",
        objective={
            "advantage.kind": "running_std",
            "admission.kind": "resample",
            "divergence.beta": {"kind": "adaptive", "initial": 0.1, "target": 0.05, "horizon": 10},
            "auxiliary.supervised": {"kind": "linear", "start": 0.2, "end": 0.0, "num_steps": 20},
        },
        num_steps=7,
        updates_per_batch=2,
        minibatches=2,
        micro_batch_members=5,
        evaluate_every=3,
    )
    policy = replace(
        policy,
        reference=PeriodicReference(sync_steps=2, alpha=0.6),
        sampling={"temperature": Linear(start=1.2, end=0.8, num_steps=7)},
    )
    return job(
        supervised(num_steps=3),
        policy,
        domain=domain or (lambda device: ToyDomain(dropout=0.1)),
        checkpoint=CheckpointConfig(every=2, keep_last=2),
    )


def fatal(original: Callable[..., Any], number: int) -> Callable[..., Any]:
    """The method, after whose `number`-th call the process is killed."""
    left = iter(range(number - 1, -1, -1))

    def call(*arguments: Any, **named: Any) -> Any:
        result = original(*arguments, **named)
        if next(left, -1) == 0:
            os.kill(os.getpid(), signal.SIGKILL)
        return result

    return call


def killing(point: str, number: int) -> Callable[[Any], ToyDomain]:
    """A domain whose process is killed, for real, in the `number`-th call of `point`."""

    def build(device: Any) -> ToyDomain:
        toy = ToyDomain(dropout=0.1)
        if point == "save_tree":
            # Between the tensors and the values of a checkpoint.
            tree.save_file = fatal(tree.save_file, number)
        else:
            setattr(toy, point, fatal(getattr(toy, point), number))
        return toy

    return build


def in_a_process(function: Callable[..., Any], *arguments: Any, kill_after: float | None = None) -> int:
    """Runs a function in a forked process; returns its exit code (-9 when killed)."""
    process = FORK.Process(target=function, args=arguments)
    process.start()
    process.join(kill_after)
    if process.is_alive() and process.pid is not None:
        os.kill(process.pid, signal.SIGKILL)
        process.join()
    assert process.exitcode is not None
    return process.exitcode


def start(path: Path, domain: Any = None) -> None:
    train(staged_job(domain), path)


def go_on(path: Path, domain: Any = None) -> None:
    resume(staged_job(domain), path)


def run_command(arguments: list[str], folder: Path, memory_bytes: int) -> None:
    """The command in this process, whose words go to files and whose end is certain."""
    from groupwise.cli.app import main

    os.chdir(folder)
    for number, name in ((1, "said"), (2, "told")):
        os.dup2(os.open(folder / name, os.O_WRONLY | os.O_CREAT | os.O_APPEND), number)
    sys.stdout, sys.stderr = (
        os.fdopen(os.dup(number), "w", encoding="utf-8", errors=errors)
        for number, errors in ((1, "strict"), (2, "backslashreplace"))
    )
    held = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (held + memory_bytes,) * 2)
    faulthandler.dump_traceback_later(DEADLINE_SECONDS, exit=True, file=sys.stderr)
    sys.argv = ["groupwise", *arguments]
    try:
        main()
    finally:
        # A reward may have closed one of them.
        for stream in (sys.stdout, sys.stderr):
            if not stream.closed:
                stream.flush()


def command(arguments: list[str], folder: Path, memory_bytes: int = MEMORY_BYTES) -> tuple[int, str]:
    """`groupwise` with these arguments, forked from this process and called in a folder.

    Args:
        arguments: behind the command's name.
        folder: where it is called; receives what it says, as `said` and `told`.
        memory_bytes: what it may take beside what this process has.

    Returns:
        The exit status (1 after `Timeout (`, where it came to no end; negative where a signal ended it), and everything
        that was said.
    """
    status = in_a_process(run_command, arguments, folder, memory_bytes, kill_after=DEADLINE_SECONDS + 30)
    return status, "\n".join(
        (folder / name).read_text(errors="backslashreplace") for name in ("said", "told") if (folder / name).exists()
    )
