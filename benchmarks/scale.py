"""One process, two, and two with weights in shards: CPU seconds of a step, waiting and memory at 20 million
parameters on CPUs under gloo.

    python benchmarks/scale.py                                    # language_step's 20M model and step
    python benchmarks/scale.py --size default --num-steps 1       # a smoke test; its ratios mean nothing
    python benchmarks/scale.py --served .engines/vllm/bin/vllm    # one process, and a vLLM server that samples for it
    python benchmarks/scale.py --start --size 150m                # memory of two processes until they are ready

The three take turns, `--repeats` times, the same prompts and group size in each: what differs is who computes. CPU
seconds are those of all processes of a run together. A share of waiting is the time that a process blocks within an
exchange over the wall time of its steps; on a machine that does other work it says little, since a process that is not
run waits too. State is weights, gradients and moments, counted before the optimiser's last step; the peak is resident
memory above the level after imports, with whole weights for sampling and what is gathered for a pass in it. With
`--served` what is measured is the share of a step's time that sending the weights takes, and their proof; `--top-k 20`
has every batch followed by another proof. With `--start` two processes, without shards and with them, open a model in
fp32 whose folder holds it in bfloat16, and end before the first step. Their peak is of memory that lies in no file;
what does lie in one is shared by processes, and is taken back where memory is short. Linux only.
"""

from __future__ import annotations

import argparse
import json
import os
import socket
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from machine import describe
from step_task import SIZES, build

VARIANTS = {"one": (1, "none"), "two": (2, "none"), "shards": (2, "full")}
TARGETS = {
    "CPU of two / one": 1.1,
    "CPU of shards / two": 1.3,
    "state of shards / two": 0.6,
}
"""Upper bounds of the ratios."""
SYNC_TARGET = 0.05
"""The largest share of a step that sending the weights to a server may take."""


STARTS = {"whole": (2, "none"), "shards": (2, "full")}


def measured(processes: int, specification: dict[str, Any]) -> list[dict[str, Any]]:
    """Runs one variant; returns the result of each of its processes."""
    out = Path(specification["out"])
    (out / "specification.json").write_text(json.dumps(specification), encoding="utf-8")
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        port = str(listener.getsockname()[1])
    here = Path(__file__).parent
    shared = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port, "WORLD_SIZE": str(processes), "OMP_NUM_THREADS": "1"}
    if specification["served"]:
        shared |= {"VLLM_CPU_KVCACHE_SPACE": "1", "VLLM_CPU_OMP_THREADS_BIND": "nobind"}
    command = [sys.executable, str(here / "scale_process.py"), str(out / "specification.json")]
    running = [
        subprocess.Popen(
            command,
            env={**os.environ, **shared, "RANK": str(rank), "LOCAL_RANK": str(rank), "PYTHONPATH": _path(here)},
        )
        for rank in range(processes)
    ]
    statuses = [process.wait() for process in running]
    if any(statuses):
        raise SystemExit(f"processes of {specification['sharding']!r} ended with {statuses}")
    return [json.loads((out / f"result-{rank}.json").read_text(encoding="utf-8")) for rank in range(processes)]


def _path(here: Path) -> str:
    return os.pathsep.join([str(here), *filter(None, [os.environ.get("PYTHONPATH")])])


def summed(results: list[dict[str, Any]]) -> dict[str, Any]:
    """The numbers of a run of one variant: CPU of all processes, a step; state and peak of the largest; waiting."""
    wall = sum(sum(result["wall"]) for result in results)
    causes = sorted({cause for result in results for step in result["waited"] for cause in step})
    return {
        "cpu": statistics.median(map(sum, zip(*(result["cpu"] for result in results), strict=True))),
        "state_mib": max(result["state_bytes"] for result in results) / 2**20,
        "peak_mib": max(result["peak_bytes"] for result in results) / 2**20,
        "wall": statistics.median(results[0]["wall"]),
        "shares": {
            name: sum(seconds) / sum(results[0]["wall"]) for name, seconds in results[0]["engine_seconds"].items()
        },
        # Of all processes, a step.
        "worked": {
            part: statistics.median(
                sum(step.get(part, 0.0) for step in steps)
                for steps in zip(*(result["worked"] for result in results), strict=True)
            )
            for part in sorted({part for result in results for step in result["worked"] for part in step})
        },
        "waited": {
            cause: sum(step.get(cause, 0.0) for result in results for step in result["waited"]) / wall
            for cause in causes
        },
    }


def started(results: list[dict[str, Any]]) -> dict[str, Any]:
    """The peak of memory in no file of the largest process, and what of files it had at the end."""
    largest = max(results, key=lambda result: result["peak_bytes"])
    return {"peak_mib": largest["peak_bytes"] / 2**20, "file_mib": largest["file_bytes"] / 2**20}


def store_in_half(folder: Path) -> None:
    """Writes a model folder anew, in bfloat16."""
    import torch
    from transformers import AutoModelForCausalLM

    AutoModelForCausalLM.from_pretrained(folder, dtype=torch.bfloat16).save_pretrained(folder)


def ratios(runs: dict[str, list[dict[str, Any]]]) -> dict[str, list[float]]:
    """The ratios of runs that stood beside each other."""

    def of(key: str, above: str, below: str) -> list[float]:
        return [a[key] / b[key] for a, b in zip(runs[above], runs[below], strict=True)]

    keys = {"CPU": "cpu", "state": "state_mib"}
    pairs = {name: (keys[name.split()[0]], name.split()[2], name.split()[4]) for name in TARGETS}
    return {name: of(*pair) for name, pair in pairs.items() if runs.keys() >= set(pair[1:])}


def main() -> None:
    """Measures and prints."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--size", choices=("default", "20m", "150m"), default="20m")
    parser.add_argument("--num-steps", type=int, default=3, help="measured steps of a run, after one")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument(
        "--members", type=int, help="members of a group (there are four groups a step); unset takes the size's"
    )
    parser.add_argument("--tokens", type=int, help="tokens of a prompt and of a completion; unset takes the size's")
    parser.add_argument("--out", type=Path, help="a JSON file for the numbers")
    parser.add_argument("--served", help="a vLLM executable: one process trains beside its server")
    parser.add_argument("--top-k", type=int, default=0, help="of sampling; a batch under it is followed by a proof")
    parser.add_argument("--variants", nargs="+", choices=VARIANTS, default=list(VARIANTS), help="which take turns")
    parser.add_argument("--start", action="store_true", help="memory until the run is ready to train, and no step")
    arguments = parser.parse_args()
    chosen = {name: VARIANTS[name] for name in arguments.variants}
    variants = {"served": (1, "none")} if arguments.served else STARTS if arguments.start else chosen
    size = SIZES[arguments.size]
    machine, runs = describe(), {name: list[dict[str, Any]]() for name in variants}
    tokens = {} if arguments.tokens is None else dict.fromkeys(("prompt_tokens", "completion_tokens"), arguments.tokens)
    size = type(size)(**{**vars(size), **tokens, "group_size": arguments.members or size.group_size})
    with tempfile.TemporaryDirectory() as folder:
        made = build(size, "fixed", 4 * size.num_prompts, Path(folder))
        if arguments.start:
            store_in_half(Path(folder) / "model")
        for repeat in range(arguments.repeats):
            for name, (processes, sharding) in variants.items():
                print(f"round {repeat + 1} of {arguments.repeats}: {name}", file=sys.stderr)
                with tempfile.TemporaryDirectory() as out:
                    specification = {
                        "folder": folder,
                        "out": out,
                        "sharding": sharding,
                        "served": arguments.served,
                        "start": arguments.start,
                        "num_warm_up": 1,
                        "num_steps": arguments.num_steps,
                        "num_prompts": size.num_prompts,
                        "group_size": size.group_size,
                        "completion_tokens": size.completion_tokens,
                        "micro_batch": size.group_size,
                        "top_k": arguments.top_k,
                    }
                    add_up = started if arguments.start else summed
                    runs[name].append(add_up(measured(processes, specification)))
    result = {"machine": machine, "settings": {**vars(arguments), "out": None}, "made": made, "runs": runs}
    result["ratios"] = ratios(runs)
    (report_start if arguments.start else report)(result)
    if arguments.out:
        arguments.out.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")


def report(result: dict[str, Any]) -> None:
    """Prints medians, and between which values they lay."""
    print(f"{result['made']['num_parameters']:,} parameters; {result['machine']}")
    for name, runs in result["runs"].items():
        parts = [f"{key} {_spread([run[key] for run in runs])}" for key in ("cpu", "state_mib", "peak_mib")]
        print(f"{name}: {', '.join(parts)}; {_spread([run['wall'] for run in runs])} s a step")
        for share in runs[0]["shares"]:
            meant = f", at most {SYNC_TARGET} is meant" if share == "sync" else ""
            print(f"    {share}: {_spread([run['shares'][share] for run in runs])} of a step's time{meant}")
        for part in sorted({part for run in runs for part in run["worked"]}):
            print(f"    CPU of {part}: {_spread([run['worked'].get(part, 0.0) for run in runs])} s a step")
        for cause in sorted({cause for run in runs for cause in run["waited"]}):
            print(f"    waits for {cause}: {_spread([run['waited'].get(cause, 0.0) for run in runs])} of its time")
    for name, values in result["ratios"].items():
        print(f"{name}: {_spread(values)}, at most {TARGETS[name]} is meant")


def report_start(result: dict[str, Any]) -> None:
    """Prints the peaks beside the size of all weights."""
    number = result["made"]["num_parameters"]
    print(f"{number:,} parameters, {number * 4 / 2**20:.0f} MiB in fp32; {result['machine']}")
    for name, runs in result["runs"].items():
        parts = [f"{key} {_spread([run[key] for run in runs])}" for key in ("peak_mib", "file_mib")]
        print(f"{name}: {', '.join(parts)}")


def _spread(values: list[float]) -> str:
    return f"{statistics.median(values):.3g} ({min(values):.3g} to {max(values):.3g})"


if __name__ == "__main__":
    main()
