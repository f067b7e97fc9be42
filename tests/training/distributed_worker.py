"""The program of each process of `test_distributed`: `python -m tests.training.distributed_worker FOLDER TASK...`.

A task is a few updates of several objectives, or a whole run; each writes into a folder of its own in FOLDER.
"""

from __future__ import annotations

import json
import logging
import os
import sys
import time
from dataclasses import replace
from functools import partial
from pathlib import Path
from statistics import fmean
from typing import Any

import torch
from safetensors.torch import save_file
from tests.images.diffusion import small
from tests.training.step.test_memory import Remembering
from tests.training.step.test_update import started
from tests.training.toy import ToyDomain, job, recipe, weights

from groupwise.checkpoint import CheckpointConfig
from groupwise.config import ConfigError
from groupwise.learner.local import trained_parameters
from groupwise.reward.scoring.table import RewardEvent, RewardTable
from groupwise.streams import Streams, seed_everything
from groupwise.track import TrackConfig
from groupwise.training import rendezvous
from groupwise.training.distributed import connect, disconnect
from groupwise.training.run import launch, run_folder
from groupwise.training.run.launch import train
from groupwise.training.step.state import Step
from groupwise.training.step.step import collect, update_policy


def only_late(index: int, action: Any) -> float | None:
    """Prompts below three give flat groups, and one member's reward is missing: the first process's groups are all
    dropped.
    """
    if index < 3:
        return 1.0
    return None if int(action[0]) == 3 else float(action[0])


# Seven prompts of lengths 1, 2, 3, 1, 2, 3, 1 over two or four processes are unequal loads.
CASES: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "token_mean": ({"method": "dapo"}, {}),
    "dropped": ({"method": "dapo", "objective": {"admission.kind": "informative"}}, {"reward_of": only_late}),
    "kl_and_member_mean": ({"method": "grpo"}, {}),
    "sequence": ({"method": "gspo"}, {"recorded": False}),
    "batch_std": (
        {"method": "dapo", "objective": {"advantage.kind": "batch_std", "aggregation.kind": "prompt_mean"}},
        {},
    ),
    "resample": (
        {"method": "dapo", "objective": {"admission.kind": "resample", "admission.max_rounds": 3}},
        {"num_prompts": 14, "reward_of": only_late},
    ),
    "draws_over_the_batch": ({"method": "clip_cov", "objective": {"trust.share": 0.3, "trust.lower": -1.0}}, {}),
    "tops_of_the_batch": (
        {"method": "kl_cov", "objective": {"trust.share": 0.3, "admission.kind": "informative", "entropy": 0.1}},
        {"reward_of": only_late, "recorded": False},
    ),
    "whitened": ({"method": "reinforce_pp_baseline"}, {}),
    "supervised": ({"method": "dapo", "objective": {"auxiliary.supervised": 0.3}, "demonstrations_per_step": 5}, {}),
}


def recorded_gradients(optimiser: torch.optim.Optimizer, toy: ToyDomain) -> list[torch.Tensor]:
    """A list that grows by the whole gradient at every optimiser step."""
    gradients: list[torch.Tensor] = []
    optimiser.register_step_pre_hook(
        lambda *_: gradients.append(torch.cat([p.grad.reshape(-1) for p in trained_parameters(toy.module)]))
    )
    return gradients


def updates(folder: Path) -> None:
    world = connect(torch.device("cpu"))
    tensors: dict[str, torch.Tensor] = {}
    numbers: dict[str, Any] = {}
    for name, (settings, domain) in CASES.items():
        chosen = recipe(prompts_per_step=7, updates_per_batch=2, minibatches=2, micro_batch_members=3, **settings)
        seed_everything(0)
        toy = ToyDomain(**{"num_prompts": 7, **domain})
        state = started(toy, chosen)
        # A large eps: Adam divides tiny gradients by tiny moments, which would magnify rounding.
        chosen = replace(chosen, optimiser=chosen.optimiser.model_copy(update={"eps": 1e-2}))
        gradients = recorded_gradients(state.learner.optimiser, toy)
        rows = []
        for _ in range(2):
            step = Step(toy, chosen, state, Streams(0), world)
            collected = collect(step)
            rows.append(len(collected.samples))
            result = update_policy(step, collected)
            state.progress.step += 1
        tensors |= {f"{name}/weights": weights(toy.module), f"{name}/gradients": torch.stack(gradients)}
        names = dict.fromkeys(name for metrics in result.metrics for name in metrics)
        means = {name: fmean(metrics[name] for metrics in result.metrics if name in metrics) for name in names}
        numbers[name] = {"metrics": means, "members": world.gather(rows), "taken": result.taken}
    if world.first:
        save_file(tensors, folder / f"updates-{world.size}.safetensors")
        (folder / f"updates-{world.size}.json").write_text(json.dumps(numbers))
    disconnect(world)


def whole(folder: Path) -> None:
    chosen = recipe(method="grpo", num_steps=3, evaluate_every=2, prompts_per_step=5)
    train(job(chosen, track=TrackConfig(console="lines")), folder / "run")


class Worn(ToyDomain):
    """A reward that times out on the second process alone, and waits at its first call until the first one has said so.

    Args:
        said: the file that the first process makes when it says for whom it waits.
    """

    def __init__(self, said: Path) -> None:
        super().__init__()
        self.said = said

    def reward(self, samples: Any) -> RewardTable:
        events: tuple[RewardEvent, ...] = ()
        if os.environ["RANK"] == "1":
            end = time.monotonic() + 600
            while not self.said.exists():
                assert time.monotonic() < end, "nobody waits"
                time.sleep(0.05)
            events = (RewardEvent("timeout", "right", count=3, detail="on process 1"),)
        return replace(super().reward(samples), events=events)


def worn(folder: Path) -> None:
    class Said(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            print(record.getMessage())
            (folder / "said").touch()

    rendezvous.SECONDS = 0.3
    logging.getLogger("groupwise").addHandler(Said())
    train(
        job(recipe(num_steps=2), domain=lambda device: Worn(folder / "said"), track=TrackConfig(console="lines")),
        folder / "run",
    )
    rendezvous.SECONDS = 60.0


class Broken(ToyDomain):
    """A reward that fails on the second process alone."""

    group: Any = None

    def reward(self, samples: Any) -> RewardTable:
        if os.environ["RANK"] == "1":
            Broken.group = torch.distributed.group.WORLD  # as shards do, which an error's frames keep
            raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 20.00 GiB")
        return super().reward(samples)


def left(folder: Path) -> None:
    """The program of process 1 catches the error of its run, keeps it, and lives on."""
    try:
        train(job(recipe(num_steps=2), domain=lambda device: Broken()), folder / "run")
    except torch.OutOfMemoryError:
        time.sleep(60)


def joined(folder: Path) -> None:
    """The program has joined the processes itself: the group outlives a run, and nobody waits for a process that has
    left one.
    """
    torch.distributed.init_process_group("gloo")
    train(job(recipe(num_steps=2)), folder / os.environ["RANK"])
    ones = torch.ones(1)
    torch.distributed.all_reduce(ones)
    print(f"{int(ones)} processes are still joined")
    left(folder)


def locked(folder: Path) -> None:
    """Another process trains in the folder. The program of process 0 catches that, and lives on for a while."""
    run_folder.locked = partial(run_folder.locked, patience_seconds=0.1)
    try:
        launch.resume(job(recipe(num_steps=2), domain=lambda device: ToyDomain()), folder / "run")
    except ConfigError:
        time.sleep(60)


def memory(folder: Path) -> None:
    chosen = recipe(num_steps=3, prompts_per_step=5)
    train(
        job(chosen, domain=lambda device: Remembering(num_prompts=7), checkpoint=CheckpointConfig(every=1)),
        folder / "run",
    )


def passes(folder: Path) -> None:
    """Process 1 has memory for three rows, process 0 for all."""

    def narrow(device: Any) -> Any:
        diffusion = small.domain({"evaluation": {"num_prompts": 4, "num_images": 4}})
        if os.environ.get("RANK", "0") == "1":
            diffusion.module.register_forward_pre_hook(fails_above(3))
        opened.append(diffusion)
        return diffusion

    opened: list[Any] = []
    chosen = recipe(method="flow_grpo", num_steps=2, prompts_per_step=5, group_size=4, updates_per_batch=2)
    train(job(chosen, domain=narrow, track=TrackConfig(console="lines")), folder / "run")
    (folder / f"sizes-{os.environ.get('RANK', '0')}.json").write_text(json.dumps(opened[0].pass_sizes.record()))


def fails_above(most: int) -> Any:
    """A hook that lets memory run out in a pass of more rows."""

    def check(module: Any, arguments: Any) -> None:
        if len(arguments[0]) > most:
            raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 20.00 GiB")

    return check


def threads_of_gloo() -> list[str]:
    """Gloo's threads of this process, by name; where the system cannot tell, none."""
    tasks = Path("/proc/self/task")
    names = [(task / "comm").read_text().strip() for task in tasks.iterdir()] if tasks.is_dir() else []
    return [name for name in names if "gloo" in name]


if __name__ == "__main__":
    chosen = (updates, whole, worn, left, joined, locked, memory, passes)
    tasks = {task.__name__: task for task in chosen}
    for name in sys.argv[2:]:
        own_folder = Path(sys.argv[1]) / name
        own_folder.mkdir(exist_ok=True)
        tasks[name](own_folder)
    # One that still runs while Python ends may abort the process, once in some hundred ends.
    if left := threads_of_gloo():
        sys.exit(f"threads outlived the group: {left}")
