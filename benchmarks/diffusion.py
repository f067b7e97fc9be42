"""Seconds per sampled-and-trained image beside a plain loop in the manner of ddpo-pytorch, on the same model, in one
run.

    python benchmarks/diffusion.py [--updates 4] [--repeats 3]

Both sides draw 160 images (10 prompts, groups of 16) with 10 transitions, reward them, and make one update of a small
DiT on 8 x 8 pixels: the model of `groupwise train diffusion`. The plain loop samples batch by batch, keeps latents and
log-probs, then trains image batch by image batch and transition by transition, all of them, accumulating one gradient.
It is measured with batches of 8 (ddpo-pytorch's `config/dgx.py`) and of all 160 images (its best case). Ours is
`domain.sample`, `reward`, the objective and `backward`, as the training loop calls them. Each side runs in a process of
its own, alternating; one thread, fp32, no KL, no reference.
"""

from __future__ import annotations

import argparse
import json
import math
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

RESULTS = Path(__file__).parent / "results" / "diffusion.json"
PROMPTS, GROUP, STEPS, ETA = 10, 16, 10, 0.7
SIDES = ("groupwise", "plain_8", "plain_160")


def plain(batch: int) -> Callable[[], None]:
    """ddpo-pytorch's loop, with the same model, noise levels and transitions; nothing of Groupwise but the fresh
    weights.
    """
    import torch
    from torch import Tensor

    model, optimiser = fresh()
    total = PROMPTS * GROUP
    labels = torch.arange(PROMPTS).repeat_interleave(GROUP)
    levels = [1 - step / STEPS for step in range(STEPS + 1)]
    kept, fresh_share = math.cos(ETA * math.pi / 2), math.sin(ETA * math.pi / 2)

    def step(x: Tensor, label: Tensor, index: int, taken: Tensor | None = None) -> tuple[Tensor, Tensor]:
        s, following = levels[index], levels[index + 1]
        v = model(x, torch.full((len(x),), 1000 * s), class_labels=label, return_dict=False)[0]
        mean = (1 - following) * (x - s * v) + following * kept * (x + (1 - s) * v)
        # The last transition has no noise; as ddpo-pytorch does at DDIM's last step, its variance is kept from zero.
        std = max(following * fresh_share, 1e-3)
        if taken is None:
            taken = (mean + std * torch.randn_like(mean)).detach()
        log_prob = -((taken - mean) ** 2) / (2 * std**2) - math.log(std) - 0.5 * math.log(2 * math.pi)
        return taken, log_prob.flatten(1).mean(1)

    def update() -> None:
        path = torch.empty(total, STEPS + 1, 1, 8, 8)
        old = torch.empty(total, STEPS)
        model.eval()
        with torch.no_grad():
            for start in range(0, total, batch):
                rows = slice(start, start + batch)
                path[rows, 0] = torch.randn_like(path[rows, 0])
                for index in range(STEPS):
                    path[rows, index + 1], old[rows, index] = step(path[rows, index], labels[rows], index)
        rewards = path[:, -1].flatten(1).mean(1)
        grouped = rewards.view(PROMPTS, GROUP)
        advantage = ((grouped - grouped.mean(1, keepdim=True)) / (grouped.std(1, keepdim=True) + 1e-6)).flatten()
        optimiser.zero_grad()
        model.train()
        for start in range(0, total, batch):
            rows = slice(start, start + batch)
            for index in range(STEPS):
                _, log_prob = step(path[rows, index], labels[rows], index, path[rows, index + 1])
                ratio = torch.exp(log_prob - old[rows, index])
                unclipped, clipped = -advantage[rows] * ratio, -advantage[rows] * ratio.clamp(1 - 1e-4, 1 + 1e-4)
                (torch.maximum(unclipped, clipped).sum() / (total * STEPS)).backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimiser.step()

    return update


def ours() -> Callable[[], None]:
    """One step of Groupwise's loop."""
    from groupwise.experiment import load_experiment
    from groupwise.experiment.runner import job_of, open_domain
    from groupwise.streams import Streams
    from groupwise.training.distributed import World
    from groupwise.training.step.state import Progress, Step, TrainState
    from groupwise.training.step.step import collect, update_policy

    sampler = f'domain.sampler={{kind="cps",eta={ETA}}}'
    # In place of the classifier, which would be computed as well.
    reward = "domain.rewards.asked={kind='callable',path='diffusion:brightness'}"
    changes = ["divergence.kind=none", reward, sampler, f"domain.num_steps={STEPS}", "stages=[]"]
    experiment = load_experiment(
        "diffusion", [*changes, f"train.prompts_per_step={PROMPTS}", f"train.group_size={GROUP}"]
    )
    (recipe,) = job_of(experiment).recipes
    domain, streams, world = open_domain(experiment), Streams(0), World()
    state = TrainState(Progress(), recipe.objective.init(), domain.learner)

    def update() -> None:
        step = Step(domain, recipe, state, streams, world)
        domain.module.eval()
        collected = collect(step)
        domain.module.train()
        update_policy(step, collected)
        state.progress.step += 1

    return update


def brightness(completions: list[Any], **columns: Any) -> list[float]:
    """The reward of both sides: the mean of the pixels."""
    import torch

    return torch.stack(list(completions)).double().flatten(1).mean(1).div(255).tolist()


def fresh() -> tuple[Any, Any]:
    """The default's model with fresh weights, and its optimiser."""
    import torch
    from diffusers.models.transformers.dit_transformer_2d import DiTTransformer2DModel

    from groupwise.experiment import load_experiment

    torch.manual_seed(0)
    domain: Any = load_experiment("diffusion").domain
    model = DiTTransformer2DModel(**domain.model.shape)
    return model, torch.optim.AdamW(model.parameters(), lr=1e-4)


def measure(side: str, updates: int) -> dict[str, float]:
    """CPU and wall seconds an update, and the memory that the updates took above what stood before them."""
    import torch
    from measure import memory_bytes, reset_peak

    torch.set_num_threads(1)
    update = ours() if side == "groupwise" else plain(int(side.removeprefix("plain_")))
    before = reset_peak()
    update()
    cpu, wall = time.process_time(), time.perf_counter()
    for _ in range(updates):
        update()
    images = updates * PROMPTS * GROUP
    found = {
        "cpu_ms_per_image": 1000 * (time.process_time() - cpu) / images,
        "wall_ms_per_image": 1000 * (time.perf_counter() - wall) / images,
    }
    return found | {"peak_mib": (memory_bytes("VmHWM") - before) / 2**20}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--updates", type=int, default=4)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--side", choices=SIDES)
    parser.add_argument("--no-write", action="store_true", help="leave benchmarks/results alone")
    given = parser.parse_args()
    if given.side:
        print(json.dumps(measure(given.side, given.updates)))
        return
    from machine import describe

    size = (
        f"{PROMPTS * GROUP} images of {STEPS} transitions an update, {given.updates} updates, {given.repeats} processes"
        " a side"
    )
    print(f"{describe()}; one thread, fp32; {size}")
    found: dict[str, list[dict[str, float]]] = {side: [] for side in SIDES}
    for _ in range(given.repeats):
        for side in SIDES:
            command = [sys.executable, __file__, "--side", side, "--updates", str(given.updates)]
            output = subprocess.run(
                command, capture_output=True, text=True, check=True, cwd=Path(__file__).parent
            ).stdout
            found[side].append(json.loads(output.splitlines()[-1]))
    medians = {
        side: {name: statistics.median(each[name] for each in runs) for name in runs[0]} for side, runs in found.items()
    }
    print(f"{'':12s} {'CPU ms/image':>22s} {'wall ms/image':>14s} {'peak MiB':>9s} {'ours / its CPU':>15s}")
    for side, own in medians.items():
        low, high = (pick(each["cpu_ms_per_image"] for each in found[side]) for pick in (min, max))
        ratio = medians["groupwise"]["cpu_ms_per_image"] / own["cpu_ms_per_image"]
        spread = f"{own['cpu_ms_per_image']:.2f} ({low:.2f} to {high:.2f})"
        print(f"{side:12s} {spread:>22s} {own['wall_ms_per_image']:14.2f} {own['peak_mib']:9.0f} {ratio:15.2f}")
    if not given.no_write:
        RESULTS.parent.mkdir(exist_ok=True)
        RESULTS.write_text(
            json.dumps({"command": "python benchmarks/diffusion.py", "machine": describe(), "runs": found}, indent=1)
            + "\n"
        )


if __name__ == "__main__":
    main()
