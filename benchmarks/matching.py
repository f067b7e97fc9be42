"""Methods without log-probs beside Flow-GRPO on the digit task, from the same starts, on equal CPU seconds.

    python benchmarks/matching.py [--seeds 10 11 12] [--methods flow_grpo awm diffusion_nft] [--steps 50 57 57]

`groupwise train diffusion` warms up once a seed; every method goes on from there with the rates, groups and evaluations
of that experiment, and no controls. A method's number of steps is about its share of the seconds that Flow-GRPO's
50 steps take. Rates are Flow-GRPO's, for all methods. One process a run, one thread; CPU seconds are those of the
process at each step, evaluations left out. Lines go to `results/matching.jsonl`, a table to `results/matching.md`.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

RESULTS = Path(__file__).parent / "results"
SHOWN = ("asked", "judge", "diversity")
HEAD = """# Methods without log-probs on the digit task

`python benchmarks/matching.py`: means over seeds from 10 on, with the lowest and the highest. The seconds are those of
Flow-GRPO's 50 steps with the same seed. Every method has Flow-GRPO's rates. Names that end in `_2` make two updates a
batch (`--methods flow_grpo_2 flow_dppo_2 --steps 28 28`), `flow_grpo_stepwise` has `domain.stepwise=true`
(`--methods flow_grpo_stepwise --steps 35`). Judge and diversity are those of the last evaluation.

"""
EVERY = 5
"""Steps between evaluations."""
VARIANTS: dict[str, dict[str, Any]] = {
    "flow_dppo_2": {"method": "flow_dppo", "train.updates_per_batch": 2},
    "flow_grpo_2": {"method": "flow_grpo", "train.updates_per_batch": 2},
    "flow_grpo_stepwise": {"method": "flow_grpo", "domain.stepwise": True},
}
"""Name in the table -> keys of the experiment, where the name is no method's alone."""


def warm_up(seed: int, folder: Path) -> None:
    """Trains the base model of a seed."""
    import groupwise

    changes = {"seed": seed, "name": f"start-{seed}", "stages.grpo.num_steps": 1}
    groupwise.train("diffusion", out=folder, controls=False, **changes)


def trained(name: str, seed: int, start: Path, folder: Path, num_steps: int) -> dict[str, Any]:
    """Trains one method from a start, and returns its line.

    Args:
        name: a method, or a name in `VARIANTS`.
        seed: of the run.
        start: the folder of the run that warmed up.
        folder: of this run.
        num_steps: the length of the stage, over which the rate falls.
    """
    from machine import describe

    import groupwise

    machine, clock, steps, curve = describe(), [time.process_time()], [], []

    def note(step: int, metrics: dict[str, float]) -> None:
        clock.append(time.process_time())
        evaluation = {key.removeprefix("eval/ode/"): value for key, value in metrics.items() if "eval/ode" in key}
        if evaluation:
            curve.append({"step": len(steps) + 1, **{key: round(evaluation[key], 5) for key in SHOWN}})
        # A step with an evaluation counts as the others do in the median.
        steps.append(float("nan") if evaluation else clock[-1] - clock[-2])

    rate = {"kind": "linear", "start": 1e-3, "end": 1e-4, "num_steps": num_steps}
    changes = {
        **VARIANTS.get(name, {"method": name}),
        "seed": seed,
        "name": f"{name}-{seed}",
        "start": str(start),
        "stages.grpo.num_steps": num_steps,
        "optimiser.learning_rate": rate,
        "train.evaluate_every": EVERY,
    }
    groupwise.train("diffusion", out=folder, controls=False, callbacks=[note], **changes)
    # The first step compiles and allocates.
    second = statistics.median(seconds for seconds in steps[1:] if seconds == seconds)
    return {
        "method": name,
        "seed": seed,
        "date": time.strftime("%Y-%m-%d"),
        "machine": machine,
        "num_steps": num_steps,
        "cpu_seconds_step": round(second, 4),
        "cpu_seconds": round(second * num_steps, 2),
        "curve": curve,
    }


def table(lines: list[dict[str, Any]]) -> str:
    """Returns the table: each method's means over seeds, at the end and at fifths of Flow-GRPO's seconds.

    Args:
        lines: of all runs.
    """
    budgets = {line["seed"]: line["cpu_seconds"] for line in lines if line["method"] == "flow_grpo"}
    rows = [
        "| method | seeds | steps | CPU seconds | asked after 1/5 of them | 2/5 | 3/5 | 5/5 | judge | diversity |",
        "|---|---|---|---|---|---|---|---|---|---|",
    ]
    for method in dict.fromkeys(line["method"] for line in lines):
        runs = [line for line in lines if line["method"] == method]
        seconds = [run["cpu_seconds"] for run in runs]
        cells = [method, str(len(runs)), str(runs[0]["num_steps"]), f"{min(seconds):.1f} to {max(seconds):.1f}"]
        for share in (0.2, 0.4, 0.6, 1.0):
            reached = [_at(run, share * budgets[run["seed"]]) for run in runs]
            cells.append(_range([point["asked"] for point in reached]))
        cells += [_range([run["curve"][-1][key] for run in runs]) for key in ("judge", "diversity")]
        rows.append(f"| {' | '.join(cells)} |")
    return "\n".join(rows)


def _at(run: dict[str, Any], seconds: float) -> dict[str, Any]:
    """Returns the last evaluation within these seconds, the first where there is none."""
    within = [point for point in run["curve"] if point["step"] * run["cpu_seconds_step"] <= seconds * 1.02]
    return within[-1] if within else run["curve"][0]


def _range(values: list[float]) -> str:
    return f"{statistics.fmean(values):.3f} [{min(values):.3f}, {max(values):.3f}]"


def main() -> None:
    """Runs what is asked for; `--one` is a run of its own process."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, nargs="+", default=[10, 11, 12])
    parser.add_argument("--methods", nargs="+", default=["flow_grpo", "awm", "diffusion_nft"])
    parser.add_argument("--steps", type=int, nargs="+", default=[50, 57, 57])
    parser.add_argument("--folder", type=Path)
    parser.add_argument("--one", nargs=5)
    arguments = parser.parse_args()
    if arguments.one:
        name, seed, start, folder, num_steps = arguments.one
        if name == "warm_up":
            warm_up(int(seed), Path(start))
        else:
            line = trained(name, int(seed), Path(start), Path(folder), int(num_steps))
            with (RESULTS / "matching.jsonl").open("a") as file:
                file.write(json.dumps(line) + "\n")
        return
    folder = arguments.folder or Path(tempfile.mkdtemp())
    for seed in arguments.seeds:
        start = folder / f"start-{seed}"
        if not start.exists():
            _alone("warm_up", seed, start, start, 0)
        for method, num_steps in zip(arguments.methods, arguments.steps, strict=True):
            _alone(method, seed, start, folder / f"{method}-{seed}-{num_steps}", num_steps)
    lines = [json.loads(line) for line in (RESULTS / "matching.jsonl").read_text(encoding="utf-8").splitlines()]
    (RESULTS / "matching.md").write_text(HEAD + table(lines) + "\n", encoding="utf-8")


def _alone(name: str, seed: int, start: Path, folder: Path, num_steps: int) -> None:
    words = [sys.executable, __file__, "--one", name, str(seed), str(start), str(folder), str(num_steps)]
    subprocess.run(words, check=True, env={**os.environ, "OMP_NUM_THREADS": "1"})


if __name__ == "__main__":
    main()
