"""Groupwise's side of `language_step.py`: a real experiment through `groupwise.train`, its JSON result printed as the
last line.
"""

from __future__ import annotations

import json
import sys
import tempfile
from pathlib import Path
from typing import Any

import measure
import torch
import transformers
import transformers.models.qwen3.modeling_qwen3

import groupwise
import groupwise.causal_lm.sampler
import groupwise.domain.language.domain
import groupwise.training.run.launch


def experiment(specification: dict[str, Any]) -> dict[str, Any]:
    """The same step as an experiment: token mean, clip at 0.2, no reference, one update a batch."""
    folder = Path(specification["folder"])
    return {
        "name": "language_step",
        "method": "bnpo",
        "seed": specification["seed"],
        "domain": {
            "kind": "language",
            "model": {
                "kind": "pretrained",
                "path": str(folder / "model"),
                "dtype": "float32",
                **adapter(specification),
            },
            "data": {"source": {"kind": "files", "paths": [str(folder / "prompts.jsonl")]}, "num_held_out": 1},
            "rewards": {"evenness": {"kind": "callable", "path": "step_task:evenness"}},
            "sampling": {"max_new_tokens": specification["completion_tokens"]},
            "evaluation": {"sampled": False},
        },
        "train": {
            # One more than is measured: the last step is followed by the last evaluation.
            "num_steps": specification["num_warm_up"] + specification["num_updates"] + 1,
            "prompts_per_step": specification["num_prompts"],
            "group_size": specification["group_size"],
            "micro_batch_members": specification.get("micro_batch"),
            "num_threads": specification["num_threads"],
            "autocast": specification.get("autocast", "none"),
            "callbacks": ["measure:tick"],
        },
        "optimiser": {"learning_rate": 1e-6},
        "checkpoint": {"every": 10**6},
        "track": {"console": "none", "rollouts_every": 10**6},
        **specification.get("groupwise", {}),
    }


def adapter(specification: dict[str, Any]) -> dict[str, Any]:
    """The adapter that is trained instead of all weights, where one is asked for."""
    rank = specification.get("lora_rank")
    return {} if rank is None else {"lora": {"r": rank, "alpha": 2 * rank}}


def main(specification: dict[str, Any]) -> dict[str, Any]:
    transformers.logging.set_verbosity_error()
    torch.set_num_threads(specification["num_threads"])
    after_import = measure.reset_peak()
    with tempfile.TemporaryDirectory() as output:
        path = Path(output) / "language_step.json"
        path.write_text(json.dumps(experiment(specification)))
        groupwise.train(groupwise.load_experiment(path, run_code=True), out=Path(output) / "run")
        rows = [json.loads(line) for line in (Path(output) / "run" / "metrics.jsonl").read_text().splitlines()]
    peak = measure.memory_bytes("VmHWM")

    skip = specification["num_warm_up"]
    steps = [row for row in rows if "step_time" in row][skip:-1]
    return {
        "system": f"groupwise, transformers {transformers.__version__}, torch {torch.__version__}",
        "step": measure.differences(measure.WALL)[skip - 1 : -1],
        "cpu": measure.differences(measure.CPU)[skip - 1 : -1],
        "sampling": [row["seconds/sampling"] for row in steps],
        "update": [row["seconds/update"] for row in steps],
        "num_tokens": [
            round(row["completions/mean_length"] * specification["num_prompts"] * specification["group_size"])
            for row in steps
        ],
        "peak_bytes": peak - after_import,
    }


if __name__ == "__main__":
    print(json.dumps(main(json.loads(Path(sys.argv[1]).read_text()))))
