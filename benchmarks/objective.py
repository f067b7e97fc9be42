"""The objective's own cost: prepare + plan + loss + backward of every preset beside GRPO written by hand in ten lines
of torch, in one run.

    python benchmarks/objective.py [--members 256] [--decisions 1024] [--rounds 25] [--presets ema balanced]

One thread, fp32. By hand is the least that anybody writes: z-score inside the group, clip at 0.2, mask (as floats,
ready), token mean, no reference. It is checked to give the loss and gradient of the preset `bnpo`, which is the same
method. By hand and preset alternate, and every ratio is of two runs that followed each other: printed are its median
and quartiles over rounds in wall time, and its median in CPU time. Two further columns: the ratio to the same by hand
with a KL to a reference and the mean of member means, which is the preset `grpo` in full; and the ratio to by hand when
all metrics are read as well, percentiles included, as a training step does that is logged.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from collections.abc import Callable
from dataclasses import fields
from pathlib import Path
from typing import Any

import torch
from machine import describe
from torch import Tensor

from groupwise.objective import Objective
from groupwise.objective.preset import method_names, overlay_names
from groupwise.records import Rollouts, Scored
from groupwise.statistics import finish

RESULTS = Path(__file__).parent / "results" / "objective.json"
TARGET = 2.5
COLUMNS = ("wall", "cpu", "wall_to_grpo_with_kl_by_hand", "wall_with_metrics_read")


def by_hand(rewards: Tensor, group_size: int, log_prob: Tensor, old: Tensor, mask: Tensor) -> Tensor:
    """GRPO in ten lines of torch: clip 0.2, token mean, no reference."""
    grouped = rewards.view(-1, group_size)
    spread = grouped.std(1, keepdim=True).clamp(min=1e-6)
    advantage = ((grouped - grouped.mean(1, keepdim=True)) / spread).view(-1, 1)
    ratio = torch.exp(log_prob - old)
    clipped = torch.clamp(ratio, 0.8, 1.2)
    surrogate = torch.min(ratio * advantage, clipped * advantage)
    return -(surrogate * mask).sum() / mask.sum()


def by_hand_with_kl(
    rewards: Tensor, group_size: int, log_prob: Tensor, old: Tensor, mask: Tensor, reference: Tensor
) -> Tensor:
    """GRPO in ten lines of torch: clip 0.2, k3 at 0.04, mean of member means."""
    grouped = rewards.view(-1, group_size)
    spread = grouped.std(1, keepdim=True).clamp(min=1e-6)
    advantage = ((grouped - grouped.mean(1, keepdim=True)) / spread).view(-1, 1)
    ratio = torch.exp(log_prob - old)
    surrogate = torch.min(ratio * advantage, torch.clamp(ratio, 0.8, 1.2) * advantage)
    gap = reference - log_prob
    loss = 0.04 * (torch.exp(gap) - gap - 1) - surrogate
    return ((loss * mask).sum(1) / mask.sum(1)).mean()


class Batch:
    """One random batch: log-probs, an old policy and a reference 0.1 nats away, lengths from half to full, groups of
    eight.
    """

    group_size = 8

    def __init__(self, members: int, decisions: int) -> None:
        torch.manual_seed(0)
        self.log_prob = -0.5 - torch.rand(members, decisions) * 3
        self.old, self.reference, self.behaviour = (
            (self.log_prob + 0.1 * torch.randn_like(self.log_prob)).clamp(max=0) for _ in range(3)
        )
        self.mask = torch.arange(decisions)[None] < torch.randint(decisions // 2, decisions + 1, (members, 1))
        self.rewards = torch.rand(members).round(decimals=1)
        self.group = torch.arange(members) // self.group_size
        names = [field.name for field in fields(Scored) if field.name not in ("log_prob", "auxiliary")]
        self.scores = {name: torch.rand(members, decisions) for name in names}
        self.stored = {
            "reference_log_prob": self.reference,
            "behaviour_log_prob": self.behaviour,
            "step_size": torch.ones(members, decisions),
        }

    def hand(self, kl: bool) -> Callable[[], tuple[Tensor, Tensor]]:
        mask = self.mask.float()

        def run() -> tuple[Tensor, Tensor]:
            leaf = self.log_prob.clone().requires_grad_()
            if kl:
                loss = by_hand_with_kl(self.rewards, self.group_size, leaf, self.old, mask, self.reference)
            else:
                loss = by_hand(self.rewards, self.group_size, leaf, self.old, mask)
            loss.backward()
            assert leaf.grad is not None
            return loss.detach(), leaf.grad

        return run

    def preset(self, name: str, read: bool = False) -> Callable[[], tuple[Tensor, Tensor]]:
        objective = Objective.preset(name)
        needed: dict[str, Any] = {name: value for name, value in self.scores.items() if name in objective.requires}
        beside: dict[str, Any] = {
            name: value for name, value in self.stored.items() if name in objective.requires_rollouts
        }

        def run() -> tuple[Tensor, Tensor]:
            leaf = self.log_prob.clone().requires_grad_()
            batch = objective.prepare(
                Rollouts(self.group, self.mask, self.old, {"reward": self.rewards}, **beside), objective.init()
            )
            plan = objective.plan(batch)
            scored = Scored(leaf, **{name: value.clone().requires_grad_() for name, value in needed.items()})
            if objective.scope == "batch":
                found = objective.cotangents(scored, plan)
                if read:
                    finish({**batch.statistics, **found.loss.statistics})
                return found.loss.total, found.scored.log_prob
            loss = objective.loss(scored, plan)
            loss.backward()
            if read:
                finish({**batch.statistics, **loss.statistics})
            return loss.total.detach(), leaf.grad if leaf.grad is not None else torch.zeros_like(leaf)

        return run


def seconds(run: Callable[[], object]) -> tuple[float, float]:
    wall, cpu = time.perf_counter(), time.process_time()
    run()
    return time.perf_counter() - wall, time.process_time() - cpu


def spread(values: list[float]) -> dict[str, float]:
    low, middle, high = statistics.quantiles(values, n=4) if len(values) > 1 else values * 3
    return {"median": middle, "lower_quartile": low, "upper_quartile": high}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--members", type=int, default=256)
    parser.add_argument("--decisions", type=int, default=1024)
    parser.add_argument("--rounds", type=int, default=25)
    parser.add_argument(
        "--presets", nargs="*", default=None, help="all presets, and `dapo` under every overlay, if not given"
    )
    parser.add_argument("--no-write", action="store_true", help="leave benchmarks/results alone")
    given = parser.parse_args()
    torch.set_num_threads(1)
    machine = describe()
    batch = Batch(given.members, given.decisions)
    hand, with_kl = batch.hand(kl=False), batch.hand(kl=True)
    for run, same in ((hand, "bnpo"), (with_kl, "grpo")):
        torch.testing.assert_close(run(), batch.preset(same)(), rtol=1e-4, atol=1e-9)
    names = given.presets or [*method_names(), *(f"dapo+{overlay}" for overlay in overlay_names())]
    presets = {name: (batch.preset(name), batch.preset(name, read=True)) for name in names}
    # A process that holds a model has freed larger blocks than these tensors; the allocator then no longer gives every
    # one back to the system.
    torch.empty(7 << 20).fill_(0)
    for run in (hand, with_kl, *(each for pair in presets.values() for each in pair)):
        seconds(run)
    base: list[float] = []
    ratios: dict[str, dict[str, list[float]]] = {name: {column: [] for column in COLUMNS} for name in names}
    for _ in range(given.rounds):
        for name, (run, logged) in presets.items():
            plain, mine, full, again, read = (seconds(each) for each in (hand, run, with_kl, hand, logged))
            base.append(1000 * plain[0])
            for column, ratio in zip(
                COLUMNS, (mine[0] / plain[0], mine[1] / plain[1], mine[0] / full[0], read[0] / again[0]), strict=True
            ):
                ratios[name][column].append(ratio)
    table = {name: {column: spread(values) for column, values in each.items()} for name, each in ratios.items()}
    print(machine)
    print(
        f"[{given.members} x {given.decisions}] fp32, one thread, {given.rounds} rounds; by hand: median"
        f" {statistics.median(base):.2f} ms"
    )
    print(f"ratio to GRPO by hand; target {TARGET}")
    print(f"{'preset':24s} {'wall':>6s} {'quartiles':>14s} {'CPU':>6s} {'to KL by hand':>14s} {'metrics read':>13s}")
    for name, row in sorted(table.items(), key=lambda item: item[1]["wall"]["median"]):
        quartiles = f"{row['wall']['lower_quartile']:.2f} to {row['wall']['upper_quartile']:.2f}"
        numbers = [row[column]["median"] for column in COLUMNS]
        print(f"{name:24s} {numbers[0]:6.2f} {quartiles:>14s} {numbers[1]:6.2f} {numbers[2]:14.2f} {numbers[3]:13.2f}")
    if not given.no_write:
        RESULTS.parent.mkdir(exist_ok=True)
        record = {
            "command": "python benchmarks/objective.py",
            "machine": machine,
            "members": given.members,
            "decisions": given.decisions,
            "rounds": given.rounds,
            "target": TARGET,
            "by_hand_milliseconds": spread(base),
            "ratio_to_grpo_by_hand": table,
        }
        RESULTS.write_text(json.dumps(record, indent=1) + "\n")


if __name__ == "__main__":
    main()
