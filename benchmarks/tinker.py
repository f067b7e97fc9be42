"""The same run on a server of the Tinker API and in this process: held-out score before and after.

    PYTHONPATH=. python benchmarks/tinker.py --seeds 1

`make engines` builds the server. The base is the model that `groupwise train language` has after its warm-up. Both runs
train a LoRA adapter of rank 8 on it with the same data, prompts, method and rates; what they draw differs (the initial
adapter, the sampled texts), so that their curves agree in what they reach and not step by step.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Sequence
from pathlib import Path

from benchmarks.command import GROUPWISE, call, cpu_seconds, environment, failure
from benchmarks.machine import describe
from tests.engines.tinker_server import PYTHON, serving

RESULT = Path(__file__).parent / "results" / "tinker.json"
SECONDS = 3600.0
WARM_UP = ["--no-controls", "stages.grpo.num_steps=1", "stages.grpo.set.optimiser.learning_rate=1e-9"]
"""One step at a rate of nothing ends the run, whose model is the warm-up's."""

EXPERIMENT = """extends = "language"
stages = []

[train]
num_steps = 40
evaluate_every = 10

[domain.data]
num_held_out = 256
"""
MODELS = {
    "server": ["domain.model.kind=tinker", "domain.model.address={address}", "domain.model.base_model={base}"],
    "local": ["domain.model.kind=pretrained", "domain.model.path={base}", "domain.model.lora={{r=8, alpha=32}}"],
}


def run(words: Sequence[str], folder: Path) -> dict[str, float]:
    """Trains one run and returns its wall and processor seconds, which of the server only its client's are."""
    before, start = cpu_seconds(), time.monotonic()
    status, output = call([*GROUPWISE, "train", *words], environment(folder / "cache"), SECONDS)
    if reason := failure(status, output, SECONDS):
        raise SystemExit(f"groupwise train {' '.join(words)}: {reason}")
    return {"wall_seconds": round(time.monotonic() - start, 1), "cpu_seconds": round(cpu_seconds() - before, 1)}


def curve(folder: Path) -> dict[str, float]:
    """Returns the held-out score by step."""
    rows = map(json.loads, (folder / "metrics.jsonl").read_text().splitlines())
    name = "greedy/correct"
    scores = ((row["step"], next((row[key] for key in row if key.endswith(name)), None)) for row in rows)
    return {str(step): round(score, 3) for step, score in scores if score is not None}


def measure(seeds: Sequence[int], folder: Path) -> None:
    """Runs everything and writes the result after each run."""
    folder.mkdir(parents=True, exist_ok=True)
    base = (folder / "base" / "model").resolve()
    if not base.is_dir():
        run(["language", *WARM_UP, "--out", str(folder / "base")], folder)
    experiment = folder / "cups_on_a_server.toml"
    experiment.write_text(EXPERIMENT)
    result = {"machine": describe(), "runs": list[object]()}
    with serving(base, folder) as address:
        for seed in seeds:
            for name, words in MODELS.items():
                out = folder / f"{name}-{seed}"
                model = [word.format(address=address, base=base) for word in words]
                seconds = run([str(experiment), *model, "--no-controls", f"seed={seed}", "--out", str(out)], folder)
                result["runs"].append({"model": name, "seed": seed, "held_out": curve(out), **seconds})  # pyright: ignore
                RESULT.write_text(json.dumps(result, indent=1) + "\n")
                print(json.dumps(result["runs"][-1]))  # pyright: ignore


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--out", type=Path, default=Path("runs/tinker"))
    arguments = parser.parse_args()
    if not PYTHON.exists():
        raise SystemExit(f"no server of the Tinker API at {PYTHON}: `make engines` builds it")
    measure(range(10, 10 + arguments.seeds), arguments.out)
