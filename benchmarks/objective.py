"""The objective's own cost: prepare + plan + loss + backward of every preset beside GRPO written by hand in ten lines, in one run.

    python benchmarks/objective.py [--members 256] [--decisions 1024] [--rounds 15]

One thread, fp32, alternating; the ratio of each round is taken to the hand-written loss of the same round, and medians are printed.
"""

from __future__ import annotations

import argparse
import json
import platform
import statistics
import time
from collections.abc import Callable
from pathlib import Path

import torch
from torch import Tensor

from groupwise.objective import Objective
from groupwise.objective.preset import method_names
from groupwise.records import Rollouts, Scored

RESULTS = Path(__file__).parent / "results" / "objective.json"


def by_hand(rewards: Tensor, group_size: int, log_prob: Tensor, old: Tensor, reference: Tensor, mask: Tensor) -> Tensor:
    """GRPO in ten lines of torch: clip 0.2, k3 at 0.04, mean of member means."""
    grouped = rewards.view(-1, group_size)
    advantage = ((grouped - grouped.mean(1, keepdim=True)) / (grouped.std(1, keepdim=True) + 1e-4)).view(-1, 1)
    ratio = torch.exp(log_prob - old)
    surrogate = torch.min(ratio * advantage, ratio.clamp(0.8, 1.2) * advantage)
    gap = reference - log_prob
    loss = -(surrogate - 0.04 * (torch.exp(gap) - gap - 1))
    return ((loss * mask).sum(1) / mask.sum(1).clamp(min=1)).mean()


def seconds(run: Callable[[], None]) -> float:
    start = time.perf_counter()
    run()
    return time.perf_counter() - start


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--members", type=int, default=256)
    parser.add_argument("--decisions", type=int, default=1024)
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--presets", nargs="*", default=None)
    parser.add_argument("--no-write", action="store_true", help="leave benchmarks/results alone")
    given = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(0)
    members, decisions, group_size = given.members, given.decisions, 8
    log_prob = -torch.rand(members, decisions) * 3
    old, reference = log_prob + 0.1 * torch.randn_like(log_prob), log_prob + 0.1 * torch.randn_like(log_prob)
    old, reference = old.clamp(max=0), reference.clamp(max=0)
    mask = torch.arange(decisions)[None] < torch.randint(decisions // 2, decisions + 1, (members, 1))
    rewards = torch.rand(members).round(decimals=1)
    group = torch.arange(members) // group_size
    extra = {name: torch.rand(members, decisions) for name in ("entropy", "score_norm", "exact_divergence", "mean_shift")}
    stored = {"reference_log_prob": reference, "step_size": torch.ones(members, decisions)}

    def hand() -> None:
        leaf = log_prob.clone().requires_grad_()
        by_hand(rewards, group_size, leaf, old, reference, mask.float()).backward()

    def ours(objective: Objective) -> Callable[[], None]:
        needed = {name: value for name, value in extra.items() if name in objective.requires}
        beside = {name: value for name, value in stored.items() if name in objective.requires_rollouts}

        def run() -> None:
            leaf = log_prob.clone().requires_grad_()
            batch = objective.prepare(Rollouts(group, mask, old, {"reward": rewards}, **beside), objective.init())
            plan = objective.plan(batch, detail=False)
            scored = Scored(leaf, **{name: value.clone().requires_grad_() for name, value in needed.items()})
            (objective.cotangents(scored, plan) if objective.scope == "batch" else objective.loss(scored, plan).backward())

        return run

    presets = {name: ours(Objective.preset(name)) for name in (given.presets or method_names())}
    for run in (hand, *presets.values()):
        run()
    ratios: dict[str, list[float]] = {name: [] for name in presets}
    hand_seconds = []
    for _ in range(given.rounds):
        for name, run in presets.items():
            base = seconds(hand)
            hand_seconds.append(base)
            ratios[name].append(seconds(run) / base)
    print(f"[{members} x {decisions}] fp32, one thread, {given.rounds} rounds; by hand: median {1000 * statistics.median(hand_seconds):.1f} ms")
    print(f"{'preset':22s} {'median':>7s} {'lowest':>7s} {'highest':>8s}   (ratio to GRPO by hand)")
    for name, values in sorted(ratios.items(), key=lambda item: statistics.median(item[1])):
        print(f"{name:22s} {statistics.median(values):7.2f} {min(values):7.2f} {max(values):8.2f}")
    if not given.no_write:
        RESULTS.parent.mkdir(exist_ok=True)
        record = {
            "command": "python benchmarks/objective.py",
            "machine": f"{platform.processor() or platform.machine()}, one thread",
            "torch": torch.__version__,
            "members": members,
            "decisions": decisions,
            "rounds": given.rounds,
            "hand_milliseconds": 1000 * statistics.median(hand_seconds),
            "ratio": {name: {"median": statistics.median(v), "lowest": min(v), "highest": max(v)} for name, v in ratios.items()},
        }
        RESULTS.write_text(json.dumps(record, indent=1) + "\n")


if __name__ == "__main__":
    main()
