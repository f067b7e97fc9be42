"""How far `groupwise estimate` is off on this machine: real steps of two sizes beside what is foretold for them.

    python benchmarks/estimate.py

`default` is the step of `groupwise train language` on its model, by GRPO with and without a reference; `20m` a
Qwen3-shaped model of 20 million parameters with a vocabulary of 32,000, prompts and completions of 64 tokens. Rewards
always differ, so every member learns.
"""

from __future__ import annotations

import json
import statistics
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from groupwise.estimate.calibration import calibrate_machine, time_probe
from groupwise.estimate.estimate import estimate
from groupwise.estimate.machine import Step
from groupwise.estimate.shape import shape_of
from groupwise.experiment import load_experiment, run


def experiment(
    shape: Mapping[str, int], words: int, length: int, new: int, prompts: int, group: int, **more: Any
) -> dict[str, Any]:
    """A step of a model with fresh weights whose prompts have `length` words of a vocabulary of about `words`."""
    count = max(2 * prompts, -(-words // length)) + 1
    texts = [
        " ".join(f"w{(length * place + word) % words}" for word in range(length - 1)) + f" n{place}"
        for place in range(count)
    ]
    return {
        "name": "estimated",
        "method": more.pop("method", "bnpo"),
        "domain": {
            "kind": "language",
            "model": {"kind": "scratch", "tokenizer": "words", "shape": {**shape, "max_positions": 2 * (length + new)}},
            "data": {"source": {"kind": "texts", "prompts": texts}, "num_held_out": 1},
            "rewards": {"differs": {"kind": "callable", "path": "groupwise.estimate.calibration:differs"}},
            "sampling": {"max_new_tokens": new},
            "evaluation": {"sampled": False},
        },
        "train": {
            "num_steps": 6,
            "prompts_per_step": prompts,
            "group_size": group,
            "callbacks": ["groupwise.estimate.calibration:tick"],
            **more,
        },
        "optimiser": {"learning_rate": 1e-6},
        "checkpoint": {"every": 10**6},
        "track": {"console": "none", "rollouts_every": 10**6},
    }


SMALL = {"hidden_size": 64, "num_layers": 3, "num_heads": 4, "num_key_value_heads": 2, "intermediate_size": 192}
LARGE = {"hidden_size": 320, "num_layers": 8, "num_heads": 5, "num_key_value_heads": 5, "intermediate_size": 960}
SIZES = {
    "default, 16 x 8 members, 10 + 10 tokens": experiment(SMALL, 32, 10, 10, 16, 8),
    "the same, four updates a batch": experiment(SMALL, 32, 10, 10, 16, 8, updates_per_batch=4),
    "the same, with a reference": experiment(SMALL, 32, 10, 10, 16, 8, method="grpo"),
    "20m, 4 x 8 members, 64 + 64 tokens, 8 in a pass": experiment(
        LARGE, 32_000, 64, 64, 4, 8, micro_batch_members=8, num_steps=3
    ),
}


def train(table: Mapping[str, Any], out: Path) -> None:
    path = out.with_suffix(".json")
    path.write_text(json.dumps(table))
    run(load_experiment(path, run_code=True), out)


def main() -> None:
    machine = calibrate_machine(train, say=print)
    print(
        f"{machine.name}; the fit misses its own measurements by (in the middle, at most) {dict(machine.residuals)}\n"
    )
    print("| step | part | foretold, s | measured, s | ratio |\n|---|---|---|---|---|")
    for name, table in SIZES.items():
        with tempfile.TemporaryDirectory() as folder:
            out = Path(folder) / "run"
            measured, rows = time_probe(table, train, out)
            shape = shape_of(json.loads((out / "model" / "config.json").read_text()))
        settings = table["train"]
        step = Step(
            settings["prompts_per_step"],
            settings["group_size"],
            prompt_tokens=len(table["domain"]["data"]["source"]["prompts"][0].split()),
            completion_tokens=statistics.mean(row["completions/mean_length"] for row in rows),
            longest=table["domain"]["sampling"]["max_new_tokens"],
            updates=settings.get("updates_per_batch", 1),
            micro_batch=settings.get("micro_batch_members"),
            reference=table["method"] == "grpo",
        )
        found = estimate(shape, step, machine.machine())
        for part, seconds in [*found.seconds.items(), ("together", found.total)]:
            took = sum(measured.values()) if part == "together" else measured[part]
            print(f"| {name} | {part} | {seconds:.3f} | {took:.3f} | {seconds / took:.2f} |", flush=True)


if __name__ == "__main__":
    main()
