"""Resident memory and the run folder over a long run of tiny steps: what grows with the steps would end a run of a
million of them.

    python benchmarks/long_run.py
    python benchmarks/long_run.py --steps 5000 --every 500

A real experiment through `groupwise.train`: a language model of one layer, one group of four members a step, an
evaluation every hundred steps, rollouts, live diagnosis, checkpoints. After every so many steps the process notes its
own resident memory and what lies in the run folder. Anonymous memory is what it has allocated itself; of the rest, code
in mapped files, the system takes away and brings back what it likes. Ctrl-C ends it with what it has measured.
"""

from __future__ import annotations

import itertools
import json
import statistics
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

import measure
import typer
from machine import describe
from rich.console import Console
from rich.table import Table

import groupwise

FIRST = 5000
"""Steps until memory has to be flat: allocators, caches and windows have filled by then."""
SAMPLES: list[dict[str, float]] = []
WATCHED: dict[str, Any] = {}


def experiment(steps: int) -> dict[str, Any]:
    """The smallest language run whose groups differ, so that nearly every step makes an update."""
    shape = {
        "hidden_size": 8,
        "num_layers": 1,
        "num_heads": 2,
        "num_key_value_heads": 1,
        "intermediate_size": 16,
        "max_positions": 32,
    }
    return {
        "name": "long_run",
        "method": "grpo",
        "divergence": {"kind": "none"},
        "domain": {
            "kind": "language",
            "model": {"kind": "scratch", "tokenizer": "words", "shape": shape},
            "data": {
                "num_train": 64,
                "num_held_out": 8,
                "source": {"kind": "sorting", "min_length": 2, "max_length": 3},
            },
            "sampling": {"max_new_tokens": 3},
            "rewards": {
                "correct": {"kind": "exact_answer"},
                # Paid by length: members of a policy that hardly learns go on to differ.
                "short": {"kind": "soft_overlong", "max_length": 3, "cache_length": 2},
            },
        },
        "train": {
            "num_steps": steps,
            "prompts_per_step": 1,
            "group_size": 4,
            "evaluate_every": 100,
            "callbacks": ["long_run:note"],
        },
        "optimiser": {"learning_rate": 1e-6},
        "checkpoint": {"every": 500},
        "track": {"console": "none"},
    }


def note(step: int, metrics: Mapping[str, float]) -> None:
    """Notes memory and folder after every so many steps; a callback for `train.callbacks`."""
    if step % WATCHED["every"]:
        return
    files = [path.stat().st_size for path in WATCHED["folder"].rglob("*") if path.is_file()]
    rows = (WATCHED["folder"] / "metrics.jsonl").stat().st_size
    SAMPLES.append(
        {
            "step": step,
            "resident_bytes": measure.memory_bytes(),
            "anonymous_bytes": measure.memory_bytes("RssAnon"),
            "files": len(files),
            "folder_bytes": sum(files),
            "metrics_bytes": rows,
            "cpu_seconds": time.process_time(),
            "updates": metrics["updates/taken"],
        }
    )


def slope(samples: list[dict[str, float]]) -> float:
    """Bytes of anonymous memory a step: least squares."""
    return statistics.linear_regression(
        [each["step"] for each in samples], [each["anonymous_bytes"] for each in samples]
    ).slope


def main(
    steps: Annotated[int, typer.Option(min=2, help="Steps of the run.")] = 50_000,
    every: Annotated[int, typer.Option(min=1, help="Steps between two notes.")] = 5000,
    out: Annotated[Path | None, typer.Option(help="Writes the measurements there too, as JSON.")] = None,
    setting: Annotated[
        list[str] | None, typer.Option("--set", help="key=value, as `groupwise train` takes it.")
    ] = None,
) -> None:
    """Memory and folder over one long run."""
    console = Console(width=max(100, Console().width))
    machine = describe()
    console.print(machine)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "long_run.json"
        path.write_text(json.dumps(experiment(steps)))
        WATCHED.update(every=every, folder=Path(folder) / "run")
        groupwise.train(groupwise.load_experiment(path, setting or [], run_code=True), out=WATCHED["folder"])
    table = Table(
        "step",
        "resident, MiB",
        "anonymous, MiB",
        "run folder, MiB",
        "files",
        "metrics.jsonl, bytes a step",
        "CPU ms a step",
    )
    for before, now in itertools.pairwise([{"step": 0, "metrics_bytes": 0, "cpu_seconds": None}, *SAMPLES]):
        span = now["step"] - before["step"]
        cpu = (
            "" if before["cpu_seconds"] is None else f"{(now['cpu_seconds'] - before['cpu_seconds']) / span * 1000:.1f}"
        )
        grown = f"{(now['metrics_bytes'] - before['metrics_bytes']) / span:.0f}"
        memory = [f"{now[kind] / 2**20:.2f}" for kind in ("resident_bytes", "anonymous_bytes", "folder_bytes")]
        table.add_row(f"{now['step']:,}", *memory, f"{now['files']:,}", grown, cpu)
    console.print(table)
    late = [each for each in SAMPLES if each["step"] >= FIRST]
    if len(late) > 1:
        levels = [each["anonymous_bytes"] for each in late]
        above = (
            f"the highest {(max(levels) - levels[0]) / 2**20:.2f} MiB above the first, the last"
            f" {(levels[-1] - levels[0]) / 2**20:+.2f} MiB"
        )
        console.print(f"Anonymous memory after step {late[0]['step']:,}: {slope(late):.1f} bytes a step; {above}.")
    if out is not None:
        out.write_text(
            json.dumps({"machine": machine, "steps": steps, "settings": setting or [], "samples": SAMPLES}, indent=1)
            + "\n"
        )


if __name__ == "__main__":
    # As the callback imports it, so that both are one module.
    import long_run

    typer.run(long_run.main)
