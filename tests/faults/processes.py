"""Runs in processes of their own, killed for real."""

from __future__ import annotations

import multiprocessing
import os
import signal
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from tests.train.toy import ToyDomain, job, recipe, supervised

from groupwise.checkpoint import CheckpointConfig, tree
from groupwise.reference import PeriodicReference
from groupwise.schedule import Linear
from groupwise.train import Job, resume, run

FORK = multiprocessing.get_context("fork")

# The first optimiser of a process imports a second's worth of modules; forked processes inherit them.
torch.optim.AdamW([torch.nn.Parameter(torch.zeros(1))])


def staged_job(domain: Callable[[Any], Any] | None = None) -> Job:
    """Every kind of state at once: two stages, dropout, a moving reference, an adaptive beta, running statistics, several updates, resampling."""
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
    policy = replace(policy, reference=PeriodicReference(sync_steps=2, alpha=0.6), sampling={"temperature": Linear(start=1.2, end=0.8, num_steps=7)})
    return job(supervised(num_steps=3), policy, domain=domain or (lambda device: ToyDomain(dropout=0.1)), checkpoint=CheckpointConfig(every=2, keep_last=2))


def killing(point: str, number: int) -> Callable[[Any], ToyDomain]:
    """A domain whose process is killed, for real, in the `number`-th call of `point`."""

    def build(device: Any) -> ToyDomain:
        toy = ToyDomain(dropout=0.1)
        counter = iter(range(number - 1, -1, -1))

        def fatal(original: Callable[..., Any]) -> Callable[..., Any]:
            def call(*arguments: Any, **named: Any) -> Any:
                result = original(*arguments, **named)
                if next(counter, -1) == 0:
                    os.kill(os.getpid(), signal.SIGKILL)
                return result

            return call

        if point == "save_tree":
            # Between the tensors and the values of a checkpoint.
            tree.save_file = fatal(tree.save_file)
        else:
            setattr(toy, point, fatal(getattr(toy, point)))
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
    run(staged_job(domain), path)


def go_on(path: Path, domain: Any = None) -> None:
    resume(staged_job(domain), path)
