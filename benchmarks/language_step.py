r"""One training step of a language model: Groupwise beside TRL's GRPOTrainer, alternating in one run, each in a process
of its own.

python benchmarks/language_step.py                     both sizes, fixed and spread lengths
python benchmarks/language_step.py --size default --updates 2 --repeats 1
python benchmarks/language_step.py --tune --size 20m   TRL alone under other settings: which are its best
python benchmarks/language_step.py --size smollm --updates 2 --repeats 2    SmolLM2-135M (make smollm installs it): a
                                                       step of TRL takes a minute and up to 14 GB
python benchmarks/language_step.py --size smollm --way lora --way bf16      an adapter; all weights under bf16 autocast
python benchmarks/language_step.py --size 20m --lengths fixed --compact --prompt-tokens 8 --completion-tokens 128 \
                                   --num-prompts 2     answers longer than prompts; TRL with its head as on a GPU, too
python benchmarks/language_step.py --by-hand --size default --size 20m --size smollm    beside a loop by hand
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

import typer
from machine import describe
from rich.console import Console
from rich.table import Table
from step_task import SIZES, build

ROOT = Path(__file__).resolve().parents[1]
TRL_ENVIRONMENT = ROOT / ".venv-trl"
TRL_PACKAGES = ["trl==1.16.0", "torch", "transformers", "accelerate", "datasets", "peft"]
MICRO_BATCH = {"default": None, "20m": 8, "smollm": None}
"""Members in one pass, the same on both sides: what `--tune` found to be TRL's fastest."""
TUNED = ("default", "20m")
"""Sizes small enough that TRL is measured under several settings first."""
ALTERNATIVES: dict[str, dict[str, Any]] = {
    "bf16": {"bf16": True},
    "gradient checkpointing": {"gradient_checkpointing": True},
    "static cache": {"cache_implementation": "static"},
    "continuous batching": {"use_transformers_continuous_batching": True},
    "unfused AdamW": {"optim": "adamw_torch"},
    "as measured": {},
}
FINALISTS = ("as measured", "static cache", "bf16")
"""Settings of TRL so near to each other that the machine of the day decides; each size and kind of lengths begins with
a heat between them.
"""
WAYS: dict[str, dict[str, Any]] = {
    "all weights": {},
    "lora": {"lora_rank": 16},
    "bf16": {"autocast": "bfloat16"},
}
"""What is trained on both sides, and in which precision: both keep fp32 weights."""
BY_HAND = 1.1
"""The CPU seconds of a step, over those of the loop by hand, that are asked for at every size."""
TARGETS = {("time", "default"): 0.5, ("time", "20m"): 0.5, ("memory", "20m"): 0.8}

console = Console(width=max(100, Console().width))
Result = dict[str, Any]


def main(
    size: Annotated[list[str] | None, typer.Option(help="default, 20m, smollm; the first two when left out.")] = None,
    lengths: Annotated[
        list[str] | None, typer.Option(help="fixed, spread; both when left out. A real model's are its own.")
    ] = None,
    updates: Annotated[int, typer.Option(min=1, help="Measured steps in each process.")] = 4,
    warm_up: Annotated[int, typer.Option(min=1, help="Steps before them.")] = 1,
    repeats: Annotated[int, typer.Option(min=1, help="Processes of each side, alternating.")] = 3,
    micro_batch: Annotated[
        int | None, typer.Option(help="Members in one pass, on both sides.", show_default="8 at 20m, all at default")
    ] = None,
    prompt_tokens: Annotated[int | None, typer.Option(min=2, help="Another length of prompts than the size's.")] = None,
    completion_tokens: Annotated[
        int | None,
        typer.Option(min=2, help="Another length of completions; spread ones have half of it as their mean."),
    ] = None,
    num_prompts: Annotated[int | None, typer.Option(min=1, help="Another number of prompts a step.")] = None,
    threads: Annotated[int, typer.Option(min=1, help="Threads a process uses.")] = 1,
    way: Annotated[list[str] | None, typer.Option(help="all weights (when left out), lora, bf16.")] = None,
    compact: Annotated[
        bool,
        typer.Option("--compact", help="Measure TRL once more, with its head on the completions alone, as on a GPU."),
    ] = False,
    by_hand: Annotated[
        bool, typer.Option("--by-hand", help="Beside a loop by hand (step_by_hand.py) instead of TRL.")
    ] = False,
    heat: Annotated[bool, typer.Option(help="First find the settings that TRL is fastest with.")] = True,
    tune: Annotated[bool, typer.Option(help="Measure TRL alone, under other settings.")] = False,
    out: Annotated[Path | None, typer.Option(help="Where every number is written as JSON.")] = None,
) -> None:
    """Seconds a step by part, tokens a second, peak memory above the level after import, and their ratios."""
    if not by_hand:
        set_up_trl()
    console.print(describe())
    records: list[Result] = []
    for name in size or list(TUNED):
        shape = SIZES[name]
        shape = replace(
            shape,
            prompt_tokens=prompt_tokens or shape.prompt_tokens,
            num_prompts=num_prompts or shape.num_prompts,
        )
        shape = (
            replace(shape, completion_tokens=completion_tokens, mean_tokens=completion_tokens / 2)
            if completion_tokens
            else shape
        )
        for kind in ["real"] if shape.package else lengths or ["fixed", "spread"]:
            for trained in way or ["all weights"]:
                with tempfile.TemporaryDirectory() as folder:
                    task = build(shape, kind, 64, Path(folder))
                    specification = {
                        **task,
                        "folder": folder,
                        "num_updates": updates,
                        "num_warm_up": warm_up,
                        "num_threads": threads,
                        "micro_batch": micro_batch or MICRO_BATCH[name],
                        **WAYS[trained],
                    }
                    _announce(name, kind, trained, specification, updates, repeats)
                    record = {
                        "size": name,
                        "lengths": kind,
                        "way": trained,
                        "task": {key: value for key, value in specification.items() if key != "folder"},
                    }
                    if tune:
                        record["trl"] = {
                            label: _measure("trl", {**specification, **settings}, 0)
                            for label, settings in _alternatives(name, task).items()
                        }
                        _show_tuning(record["trl"])
                    else:
                        sides = {"by_hand": specification}
                        if not by_hand:
                            record["trl_settings"] = label = (
                                _heat(specification) if heat and name in TUNED else "as measured"
                            )
                            sides = {"trl": {**specification, "trl": ALTERNATIVES[label]}}
                            if compact:
                                sides["trl_compact"] = {**sides["trl"], "compact_head": True}
                        sides["groupwise"] = specification
                        for found in _alternate(sides, repeats):
                            record |= found
                            _write(out, [*records, record])
                        _show(name, record)
                records.append(record)
                _write(out, records)


def set_up_trl() -> None:
    """TRL's own environment, once; torch and transformers in the versions that Groupwise is pinned to."""
    stamp = TRL_ENVIRONMENT / f".{TRL_PACKAGES[0]}"
    if stamp.exists():
        return
    console.print(f"setting up {TRL_ENVIRONMENT.name} with {', '.join(TRL_PACKAGES)}")
    subprocess.run([sys.executable, "-m", "venv", str(TRL_ENVIRONMENT)], check=True)
    command = [
        str(TRL_ENVIRONMENT / "bin" / "python"),
        "-m",
        "pip",
        "install",
        "--quiet",
        "--constraint",
        str(ROOT / "constraints.txt"),
        *TRL_PACKAGES,
    ]
    subprocess.run(command, check=True)
    stamp.touch()


def _measure(system: str, specification: Result, repeat: int) -> Result:
    """One side in a process of its own."""
    python = sys.executable if system != "trl" else str(TRL_ENVIRONMENT / "bin" / "python")
    environment = {
        **os.environ,
        "OMP_NUM_THREADS": str(specification["num_threads"]),
        "HF_HUB_OFFLINE": "1",
        "TOKENIZERS_PARALLELISM": "false",
    }
    environment["PYTHONPATH"] = str(ROOT / "benchmarks")
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "specification.json"
        path.write_text(json.dumps({**specification, "seed": repeat}))
        command = [python, str(ROOT / "benchmarks" / f"step_{system}.py"), str(path)]
        done = subprocess.run(command, capture_output=True, text=True, env=environment, cwd=folder)
    if done.returncode != 0:
        raise SystemExit(f"{' '.join(command)} failed:\n{done.stderr[-4000:]}")
    return json.loads(done.stdout.splitlines()[-1])


def _heat(specification: Result) -> str:
    """Which of the finalists TRL is fastest with: the least CPU seconds of a step in a short process each."""
    short = {**specification, "num_updates": min(specification["num_updates"], 5)}
    seconds = {label: min(_measure("trl", {**short, "trl": ALTERNATIVES[label]}, 0)["cpu"]) for label in FINALISTS}
    fastest = min(seconds, key=lambda label: seconds[label])
    console.print(
        f"TRL's heat, CPU s: {', '.join(f'{label} {spent:.3f}' for label, spent in seconds.items())}; it goes on with:"
        f" {fastest}"
    )
    return fastest


def _write(out: Path | None, records: list[Result]) -> None:
    if out is not None:
        out.write_text(json.dumps({"machine": describe(), "records": records}, indent=1) + "\n")


def _alternate(sides: dict[str, Result], repeats: int) -> Iterator[dict[str, list[Result]]]:
    """All sides in turn, the first one changing, so that a slow minute of the machine meets them all; gives what is
    found after each round.
    """
    found: dict[str, list[Result]] = {side: [] for side in sides}
    for repeat in range(repeats):
        for side in sorted(sides, reverse=repeat % 2 == 0):
            found[side].append(_measure(side.removesuffix("_compact"), sides[side], repeat))
        yield found


def _alternatives(name: str, task: Result) -> dict[str, Result]:
    members = SIZES[name].num_prompts * SIZES[name].group_size
    choices = {
        f"micro-batch {count}": {"micro_batch": count}
        for count in (2, 4, 8, 16, 32, 64)
        if members % count == 0 and count <= members
    }
    # The settings as they are measured come again at the end: how far the two differ is how far to trust the table.
    return choices | {label: {"trl": settings} for label, settings in ALTERNATIVES.items()}


def _announce(name: str, kind: str, trained: str, task: Result, updates: int, repeats: int) -> None:
    shape = f"completions of {task['completion_tokens']} tokens"
    if kind == "real":
        shape = f"completions of at most {task['completion_tokens']} tokens"
    if kind == "spread":
        shape = (
            f"completions that end with chance {task['end_chance']:.4f} after every token, at most"
            f" {task['completion_tokens']}"
        )
    console.rule(
        f"{name}: {task['num_parameters']:,} parameters, vocabulary {task['vocabulary']:,}, {kind} lengths; trained:"
        f" {trained}"
    )
    tokens = f"{'half to all of ' if kind == 'spread' else ''}{task['prompt_tokens']} tokens"
    prompts = f"{task['num_prompts']} prompts of {tokens}"
    console.print(
        f"{prompts} x {task['group_size']} members, {shape}; {task['micro_batch'] or 'all'} members a pass,"
        f" {task['num_threads']} thread(s); {updates} steps in each of {repeats} processes a side"
    )


def _median(result: Result, part: str) -> float:
    return statistics.median(result[part])


def _spread(values: list[float], digits: int = 3) -> str:
    """The median over processes, and between which values they lay."""
    middle = f"{statistics.median(values):.{digits}f}"
    return middle if len(values) == 1 else f"{middle} ({min(values):.{digits}f} to {max(values):.{digits}f})"


def _rows(results: list[Result]) -> dict[str, list[float]]:
    return {
        "step, s": [_median(result, "step") for result in results],
        "step, CPU s": [_median(result, "cpu") for result in results],
        "sampling, s": [_median(result, "sampling") for result in results],
        "update, s": [_median(result, "update") for result in results],
        "sampled tokens/s": [sum(result["num_tokens"]) / sum(result["step"]) for result in results],
        "peak memory, MiB": [result["peak_bytes"] / 2**20 for result in results],
    }


def _show(name: str, record: Result) -> None:
    titles = {"trl": "TRL", "trl_compact": "TRL, head on completions", "by_hand": "by hand"}
    peers = {title: side for side, title in titles.items() if side in record}
    ours, all_theirs = _rows(record["groupwise"]), {title: _rows(record[side]) for title, side in peers.items()}
    theirs = next(iter(all_theirs.values()))
    table = Table("", *peers, "Groupwise", *(f"Groupwise / {title}" for title in peers))
    for part in ours:
        digits = 0 if part.startswith(("sampled", "peak")) else 3
        ratios = [
            [own / other for own, other in zip(ours[part], rows[part], strict=True)] for rows in all_theirs.values()
        ]
        table.add_row(
            part,
            *(_spread(rows[part], digits) for rows in all_theirs.values()),
            _spread(ours[part], digits),
            *(_spread(values, 2) for values in ratios),
        )
    console.print(table)
    console.print("; ".join(record[side][0]["system"] for side in [*peers.values(), "groupwise"]))
    counts = {
        title: statistics.mean(count for result in record[side] for count in result["num_tokens"])
        for title, side in (peers | {"Groupwise": "groupwise"}).items()
    }
    console.print(f"tokens sampled a step: {'; '.join(f'{title} {count:.0f}' for title, count in counts.items())}")
    if "by_hand" in record:
        _show_target("CPU seconds", ours["step, CPU s"], theirs["step, CPU s"], BY_HAND)
        return
    for (what, size), target in TARGETS.items():
        if size == name:
            part = "step, s" if what == "time" else "peak memory, MiB"
            _show_target(what, ours[part], theirs[part], target)


def _show_target(what: str, ours: list[float], theirs: list[float], target: float) -> None:
    found = statistics.median(own / other for own, other in zip(ours, theirs, strict=True))
    reached = "reached" if found <= target else "not reached"
    console.print(f"{what}: {found:.2f} of the other side's, asked for at most {target}: {reached}")


def _show_tuning(found: dict[str, Result]) -> None:
    table = Table("TRL with", "step, s", "step, CPU s", "sampling, s", "update, s", "peak memory, MiB")
    for label, result in found.items():
        table.add_row(
            label,
            *(f"{_median(result, part):.3f}" for part in ("step", "cpu", "sampling", "update")),
            f"{result['peak_bytes'] / 2**20:.0f}",
        )
    console.print(table)


if __name__ == "__main__":
    typer.run(main)
