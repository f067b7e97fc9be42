"""The head against full logits: time, extra memory and agreement, at the vocabulary of a real model.

    python benchmarks/head.py            # vocabulary 151,936, hidden 896, 2,048 positions
    python benchmarks/head.py --small    # a smoke test of a few seconds; its ratios mean nothing

One pass is the log-probs of every position and the gradients with respect to hidden states and weight. The variants
take turns in one process for the times. Full logits are written in three ways, and the best of them is the peer. Each
variant's memory is the peak of a process of its own, over the level after its imports. What every variant must hold
(hidden states, weight, and the gradients of both) is then taken off: the rest is what the method itself adds. Linux
only.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import statistics
import subprocess
import sys
import time
from pathlib import Path

# Before torch is imported: it reads this once.
os.environ.setdefault("OMP_NUM_THREADS", "1")

import torch
from measure import memory_bytes, reset_peak

from groupwise.causal_lm.head import token_scores, token_scores_backward

FULL = {"vocabulary": 151_936, "hidden": 896, "positions": 2_048}
SMALL = {"vocabulary": 4_000, "hidden": 64, "positions": 512}
PEERS = ("log_softmax", "logsumexp", "cross_entropy")
"""Three ways to write full logits; the fastest of them is the peer in time, the leanest in memory."""
VARIANTS = (*PEERS, "chunked", "known_cotangent")
TARGETS = {"chunked": {"time": 1.35, "memory": 1 / 8}, "known_cotangent": {"time": 1.05, "memory": 1 / 8}}


class Case:
    """Inputs of one size; the same for every variant."""

    def __init__(self, size: dict[str, int]) -> None:
        generator = torch.Generator().manual_seed(0)
        vocabulary, width, positions = size["vocabulary"], size["hidden"], size["positions"]
        self.hidden = torch.randn(positions, width, generator=generator).requires_grad_()
        self.weight = torch.randn(vocabulary, width, generator=generator).mul_(width**-0.5).requires_grad_()
        self.target = torch.randint(vocabulary, (positions,), generator=generator)
        self.cotangent = torch.randn(positions, generator=generator)

    def held_bytes(self) -> int:
        """Inputs and the gradients of both leaves: no method can do without."""
        small = self.target.nbytes + self.cotangent.nbytes
        return 2 * (self.hidden.nbytes + self.weight.nbytes) + small

    def run(self, variant: str) -> tuple[torch.Tensor, torch.Tensor]:
        """Log-probs, and the gradient with respect to the hidden states; the weight's is in its ``.grad``."""
        self.hidden.grad = self.weight.grad = None
        if variant == "known_cotangent":
            scores, gradient = token_scores_backward(
                self.hidden, self.weight, self.target, {"log_prob": self.cotangent}
            )
            return scores["log_prob"], gradient
        if variant == "chunked":
            log_prob = token_scores(self.hidden, self.weight, self.target)["log_prob"]
        else:
            log_prob = full_logits(variant, self.hidden @ self.weight.t(), self.target)
        (log_prob * self.cotangent).sum().backward()
        assert self.hidden.grad is not None
        return log_prob.detach(), self.hidden.grad


def full_logits(variant: str, logits: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
    """Log-probs by one of the peers."""
    if variant == "cross_entropy":
        return -torch.nn.functional.cross_entropy(logits, target, reduction="none")
    if variant == "logsumexp":
        return logits.gather(1, target[:, None]).squeeze(1) - logits.logsumexp(-1)
    return torch.log_softmax(logits, dim=-1).gather(1, target[:, None]).squeeze(1)


def memory_of(variant: str, size: dict[str, int]) -> None:
    """In a process of its own: print the peak over the level after the imports."""
    torch.set_num_threads(1)
    reset_peak()
    level = memory_bytes()
    case = Case(size)
    case.run(variant)
    print(json.dumps({"peak": memory_bytes("VmHWM") - level, "held": case.held_bytes()}))


def measured_memory(variant: str, small: bool) -> dict[str, int]:
    command = [sys.executable, __file__, "--memory-of", variant, *(["--small"] if small else [])]
    return json.loads(subprocess.run(command, capture_output=True, text=True, check=True).stdout.splitlines()[-1])


def agreement(size: dict[str, int]) -> dict[str, float]:
    """Largest difference from full logits, relative to the largest entry, of values and both gradients."""
    case, worst = Case(size), {}
    value, gradient = case.run(PEERS[0])
    weight_gradient = case.weight.grad
    for variant in VARIANTS[1:]:
        other, other_gradient = case.run(variant)
        pairs = ((other, value), (other_gradient, gradient), (case.weight.grad, weight_gradient))
        worst[variant] = max(
            ((a - b).abs().max() / b.abs().max()).item() for a, b in pairs if a is not None and b is not None
        )
    return worst


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--small", action="store_true", help="a smoke test of a few seconds")
    parser.add_argument("--repeats", type=int, default=3, help="timed rounds, after one that is not counted")
    parser.add_argument("--memory-of", choices=VARIANTS, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    size = SMALL if arguments.small else FULL
    if arguments.memory_of:
        memory_of(arguments.memory_of, size)
        return
    memory = {variant: measured_memory(variant, arguments.small) for variant in VARIANTS}
    torch.set_num_threads(1)
    differences = agreement({**size, "positions": min(size["positions"], 256)})
    case = Case(size)
    seconds: dict[str, list[float]] = {variant: [] for variant in VARIANTS}
    for repeat in range(arguments.repeats + 1):
        print(f"round {repeat} of {arguments.repeats}", file=sys.stderr)
        for variant in VARIANTS:
            start = time.perf_counter()
            case.run(variant)
            if repeat:
                seconds[variant].append(time.perf_counter() - start)
    rows = {}
    fastest = min(PEERS, key=lambda peer: statistics.median(seconds[peer]))
    leanest = min(PEERS, key=lambda peer: memory[peer]["peak"])
    for variant in VARIANTS:
        # The ratio is taken round by round, so that a slow moment of the machine hits both sides of it.
        ratios = [a / b for a, b in zip(seconds[variant], seconds[fastest], strict=True)]
        extra, base = (memory[v]["peak"] - memory[v]["held"] for v in (variant, leanest))
        rows[variant] = {
            "seconds": [round(s, 3) for s in seconds[variant]],
            "seconds_median": round(statistics.median(seconds[variant]), 3),
            "time_ratio_median": round(statistics.median(ratios), 3),
            "time_ratio_range": [round(min(ratios), 3), round(max(ratios), 3)],
            "peak_over_import_bytes": memory[variant]["peak"],
            "extra_bytes": extra,
            "extra_ratio": round(extra / base, 4),
            "largest_relative_difference": differences.get(variant, 0.0),
            "target": TARGETS.get(variant),
        }
    result = {
        "command": "python benchmarks/head.py" + (" --small" if arguments.small else ""),
        "size": size,
        "dtype": "float32",
        "machine": {
            "processor": processor(),
            "threads": 1,
            "torch": torch.__version__,
            "python": platform.python_version(),
        },
        "held_bytes": memory[PEERS[0]]["held"],
        "peer_in_time": fastest,
        "peer_in_memory": leanest,
        "variants": rows,
    }
    print(f"ratios are to {fastest} in time and to {leanest} in memory, the best of the full logits")
    print(
        f"{'variant':<16} {'seconds':>8} {'ratio':>6} {'range':>13} {'peak MB':>8} {'extra MB':>9} {'ratio':>7}"
        f" {'difference':>11}"
    )
    for variant, row in rows.items():
        low, high = row["time_ratio_range"]
        peak, extra = row["peak_over_import_bytes"] / 1e6, row["extra_bytes"] / 1e6
        print(
            f"{variant:<16} {row['seconds_median']:>8.3f} {row['time_ratio_median']:>6.2f} {low:>6.2f}-{high:<6.2f}"
            f" {peak:>8.0f} {extra:>9.0f} {row['extra_ratio']:>7.4f} {row['largest_relative_difference']:>11.1e}"
        )
    if not arguments.small:
        path = Path(__file__).parent / "results" / "head.json"
        path.parent.mkdir(exist_ok=True)
        path.write_text(json.dumps(result, indent=1) + "\n")
        print(f"written to {path}")


def processor() -> str:
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.split(":", 1)[1].strip()
    return platform.processor()


if __name__ == "__main__":
    main()
