"""One process of `scale.py`: a real run through `groupwise.train`, what it used and for what it waited, as JSON.

RANK=0 WORLD_SIZE=2 ... python benchmarks/scale_process.py SPECIFICATION.json
"""

from __future__ import annotations

import importlib
import json
import os
import sys
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import measure
import torch
import vllm_on_cpu

import groupwise
from groupwise.domain.language.domain import LanguageDomain
from groupwise.learner.local import LocalLearner
from groupwise.learner.protocol import StepNumbers
from groupwise.learner.shards import local_part
from groupwise.runs import read_lines
from groupwise.training.distributed import World
from groupwise.training.run import launch
from groupwise.training.step import step


class Seconds:
    """Seconds by cause, of a clock."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self.seconds: defaultdict[str, float] = defaultdict(float)
        self._clock, self._inside = clock, False

    @contextmanager
    def for_cause(self, cause: str) -> Iterator[None]:
        """Adds the block's time to a cause; a block within another belongs to the outer one."""
        if self._inside:
            yield
            return
        self._inside, began = True, self._clock()
        try:
            yield
        finally:
            self._inside = False
            self.seconds[cause] += max(0.0, self._clock() - began)

    def note(self, owner: Any, name: str, cause: str) -> None:
        """Lets every call of a function add to a cause."""
        function: Callable[..., Any] = getattr(owner, name)

        def timed(*arguments: Any, **keywords: Any) -> Any:
            with self.for_cause(cause):
                return function(*arguments, **keywords)

        setattr(owner, name, timed)


WAITING = Seconds(lambda: time.perf_counter() - time.thread_time())
"""Seconds that this process blocked: wall time within an exchange, less the CPU time of its thread."""
WORKING = Seconds(time.process_time)
"""CPU seconds of all threads of this process."""
WAITED_BY_STEP: list[dict[str, float]] = []
WORKED_BY_STEP: list[dict[str, float]] = []
STATE_BYTES: list[int] = []
"""Bytes of weights, gradients and moments that this process holds after each optimiser step's backward pass."""


def tick(*_: object) -> None:
    """Notes the end of a step; a callback for `train.callbacks`."""
    measure.tick()
    WAITED_BY_STEP.append(dict(WAITING.seconds))
    WORKED_BY_STEP.append(dict(WORKING.seconds))


def counting(step: Callable[[LocalLearner, StepNumbers], float]) -> Callable[[LocalLearner, StepNumbers], float]:
    """Counts weights, gradients and moments before an optimiser step; the moments exist from the second step on."""

    def counted(learner: LocalLearner, numbers: StepNumbers) -> float:
        tensors = [*learner.module.parameters()]
        tensors += [parameter.grad for parameter in learner.module.parameters() if parameter.grad is not None]
        tensors += [
            value
            for moments in learner.optimiser.state.values()
            for value in moments.values()
            if isinstance(value, torch.Tensor)
        ]
        STATE_BYTES.append(sum(local_part(tensor).nbytes for tensor in tensors))
        return step(learner, numbers)

    return counted


def watch(sharded: bool) -> None:
    """Lets exchanges note the time that they block, optimiser steps their memory, and the parts of a step their CPU
    time.
    """
    WORKING.note(LanguageDomain, "sample", "sampling")
    WORKING.note(step, "policy_gradient", "passes of the update")
    WORKING.note(LocalLearner, "step", "AdamW")
    WORKING.note(World, "sum_gradients", "sum of gradients")
    for name in ("sum", "gather", "barrier"):
        WORKING.note(World, name, "agreement")
    WAITING.note(World, "sum_gradients", "sum of gradients")
    WAITING.note(World, "sum", "sum of counts")
    WAITING.note(World, "gather", "agreement, and who comes last")
    WAITING.note(World, "barrier", "agreement, and who comes last")
    if sharded:
        from torch.distributed.fsdp._fully_shard import _fsdp_param_group

        group: Any = _fsdp_param_group.FSDPParamGroup
        for name in ("unshard", "wait_for_unshard"):
            WAITING.note(group, name, "weights of a layer")
        WAITING.note(_fsdp_param_group, "foreach_reduce", "sum of gradients")
        from groupwise.learner import shards

        WAITING.note(shards, "whole_tensor", "whole weights for sampling")
    LocalLearner.step = counting(LocalLearner.step)  # type: ignore[method-assign]


def experiment(specification: dict[str, Any]) -> dict[str, Any]:
    """A step of language_step.py's task: token mean, clip at 0.2, one update a batch."""
    folder = Path(specification["folder"])
    num_steps = specification["num_warm_up"] + specification["num_steps"] + 1
    return {
        "name": "scale",
        "method": "bnpo",
        "domain": {
            "kind": "language",
            "model": {"kind": "pretrained", "path": str(folder / "model"), "dtype": "float32"},
            "data": {"source": {"kind": "files", "paths": [str(folder / "prompts.jsonl")]}, "num_held_out": 2},
            "rewards": {"evenness": {"kind": "callable", "path": "step_task:evenness"}},
            "sampling": {"max_new_tokens": specification["completion_tokens"], "top_k": specification["top_k"]},
            "evaluation": {"sampled": False},
            **({"engine": engine(specification["served"])} if specification["served"] else {}),
        },
        "train": {
            # One more than is measured: the last step is followed by the last evaluation.
            "num_steps": num_steps,
            "prompts_per_step": specification["num_prompts"],
            "group_size": specification["group_size"],
            "micro_batch_members": specification["micro_batch"],
            "sharding": specification["sharding"],
            "callbacks": ["scale_process:tick"],
        },
        "optimiser": {"learning_rate": 1e-6},
        "checkpoint": {"every": 10**6},
        "track": {"console": "none", "rollouts_every": 0},
    }


def engine(executable: str) -> dict[str, Any]:
    """A vLLM server that the run starts."""
    return {"kind": "vllm", "start": True, "executable": executable, "arguments": [*vllm_on_cpu.ARGUMENTS]}


def engine_seconds(run: Path, skip: int) -> dict[str, list[float]]:
    """Seconds that the weights took to the server, and their proof, in the measured steps; empty without a server."""
    rows = [row for row in read_lines(run / "metrics.jsonl").rows if "sampling/sync_seconds" in row][skip:-1]
    return {name: [row[f"sampling/{name}_seconds"] for row in rows] for name in ("sync", "proof") if rows}


class Started(Exception):
    """The run is ready to train, and is not to."""


def at_start(file: Path, out: Path) -> dict[str, Any]:
    """Memory of this process that lies in no file, at its highest until domain and shards are made."""
    for name in ("groupwise.domain.language.domain", "torch.distributed.fsdp"):
        importlib.import_module(name)
    level = peak = measure.memory_bytes("RssAnon")
    done = threading.Event()

    def look() -> None:
        nonlocal peak
        while not done.wait(0.002):
            peak = max(peak, measure.memory_bytes("RssAnon"))

    build = launch._build

    def build_and_end(*arguments: Any, **keywords: Any) -> Any:
        build(*arguments, **keywords)
        raise Started

    launch._build = build_and_end
    watcher = threading.Thread(target=look)
    watcher.start()
    try:
        groupwise.train(groupwise.load_experiment(file, run_code=True), out=out / "run")
    except Started:
        pass
    finally:
        done.set()
        watcher.join()
    return {"peak_bytes": peak - level, "file_bytes": measure.memory_bytes("RssFile")}


def main(specification: dict[str, Any]) -> dict[str, Any]:
    """The medians are taken by the caller: every list has one entry a measured step."""
    torch.set_num_threads(1)
    out = Path(specification["out"])
    file = out / f"experiment-{os.environ['RANK']}.json"
    file.write_text(json.dumps(experiment(specification)), encoding="utf-8")
    if specification.get("start"):
        return at_start(file, out)
    watch(specification["sharding"] == "full")
    level = measure.reset_peak()
    groupwise.train(groupwise.load_experiment(file, run_code=True), out=out / "run")
    skip = specification["num_warm_up"]
    waited, worked = (
        [
            {cause: now[cause] - before.get(cause, 0.0) for cause in now}
            for before, now in zip(steps[skip - 1 : -2], steps[skip:-1], strict=True)
        ]
        for steps in (WAITED_BY_STEP, WORKED_BY_STEP)
    )
    return {
        "cpu": measure.differences(measure.CPU)[skip - 1 : -1],
        "wall": measure.differences(measure.WALL)[skip - 1 : -1],
        "waited": waited,
        "worked": worked,
        "engine_seconds": engine_seconds(out / "run", skip),
        "state_bytes": max(STATE_BYTES),
        "peak_bytes": measure.memory_bytes("VmHWM") - level,
    }


if __name__ == "__main__":
    # The callback's module and this one are the same.
    sys.modules["scale_process"] = sys.modules["__main__"]
    description = json.loads(Path(sys.argv[1]).read_text(encoding="utf-8"))
    result = main(description)
    (Path(description["out"]) / f"result-{os.environ['RANK']}.json").write_text(json.dumps(result), encoding="utf-8")
