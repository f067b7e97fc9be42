"""One part of `gpu.py`, in this process: a real run (or the tests), what it took written to `FOLDER/NAME.json`.

python benchmarks/gpu_part.py NAME FOLDER cuda|cpu [--tiny]
"""

from __future__ import annotations

import json
import math
import re
import shutil
import statistics
import subprocess
import sys
import time
import traceback
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from gpu import HEAVY
from gpu_models import IMAGES, LANGUAGE, image_experiment, language_experiment

ROOT = Path(__file__).resolve().parents[1]
Result = dict[str, Any]

RUNS = {
    # The stages, the rewards and the evaluations of the default, fewer steps of each.
    "language": ["stages.warm_up.num_steps=60", "stages.grpo.num_steps=10", "stages.grpo.set.train.evaluate_every=5"],
    "diffusion": ["stages.warm_up.num_steps=40", "stages.grpo.num_steps=5"],
    "restoration": ["stages.supervised.num_steps=80", "stages.grpo.num_steps=10", "domain.evaluation.repeats=1"],
    "selection": ["train.num_steps=20"],
    # As it is shipped, without its controls; the model comes in a package (make smollm).
    "language_smollm": ["controls=null"],
}
SMALL = {
    "language": [
        "stages.warm_up.num_steps=2",
        "stages.grpo.num_steps=2",
        "domain.data.num_train=32",
        "domain.data.num_held_out=8",
        "controls=null",
    ],
    "diffusion": [
        "stages.warm_up.num_steps=2",
        "stages.grpo.num_steps=2",
        "domain.evaluation.num_images=4",
        "train.group_size=4",
        "controls=null",
    ],
    "restoration": [
        "stages.supervised.num_steps=2",
        "stages.grpo.num_steps=2",
        "domain.evaluation.num_images=8",
        "domain.source.num_train=64",
        "controls=null",
    ],
    "selection": [
        "train.num_steps=2",
        "domain.source.num_train=64",
        "domain.source.num_held_out=16",
        "domain.task_model.num_steps=2",
        "domain.evaluation.tables=false",
    ],
    "language_smollm": ["train.num_steps=3", "train.group_size=2", "domain.data.num_held_out=4"],
}

PEERS = {"trl": "qwen_lora", "trl_vllm": "qwen_vllm"}
"""TRL's trainer, by the part of ours that it is measured beside."""
SERVER = {"sync_seconds": "s", "proof_seconds": "s", "sleep_seconds": "s", "proof_difference": "nats"}
"""What following the weights takes of a step, and how far a server's log-probs are from the trainer's: unit by name."""


def run_part(name: str, folder: Path, device: str, tiny: bool) -> Result:
    """The part's run: what it measured; raises what breaks it."""
    if name == "tests":
        return tests(device, tiny)
    if name in PEERS:
        return beside_trl(PEERS[name], folder, device, tiny)
    from groupwise import load_experiment, train

    path, out = folder / f"{name}-experiment.json", folder / f"{name}-run"
    shutil.rmtree(out, ignore_errors=True)
    if name in (*LANGUAGE, *IMAGES):
        write = language_experiment if name in LANGUAGE else image_experiment
        path.write_text(json.dumps(write(name, folder, device, tiny)))
        experiment = load_experiment(path, run_code=True)
    else:
        experiment = load_experiment(
            name, [*RUNS[name], *(SMALL[name] if tiny else []), f"train.device={device}", "track.console=none"]
        )
    if getattr(experiment.train, "sharding", "none") == "none":
        train(experiment, out=out)
    else:
        in_processes(path, out, device)
    for heavy in HEAVY:
        shutil.rmtree(out / heavy, ignore_errors=True)
    result = measured(out, device)
    if name in LANGUAGE:
        # What a server holds is no part of the formula.
        return result if LANGUAGE[name].get("served") else with_formula(result, experiment, out)
    return result


def in_processes(experiment: Path, out: Path, device: str) -> None:
    """Trains with as many processes as there are GPUs (two on a CPU), each with a share of the weights, but no
    more than there are prompts.
    """
    import torch

    prompts = json.loads(experiment.read_text())["train"]["prompts_per_step"]
    size = min(prompts, torch.cuda.device_count() if device == "cuda" else 2)
    launcher = [sys.executable, "-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={size}"]
    command = [*launcher, "-m", "groupwise", "train", str(experiment), "--run-code", "--out", str(out)]
    said: list[str] = []
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as processes:
        # Passed on at once: of processes that hang and are ended, this is all that is left.
        for text in processes.stdout or ():
            print(text, end="", flush=True)
            said.append(text.strip())
    if processes.returncode != 0:
        raise RuntimeError(f"{size} processes ended with status {processes.returncode}: {first_cause(said)}")


def first_cause(said: Sequence[str]) -> str:
    """What ended a group of processes: our own line, or Python's last one. The launcher's comes after them, and says
    nothing of the cause.
    """
    for text in said:
        if text.startswith("error") or re.match(r"(\[rank\d+\]: )?[\w.]+Error: .", text):
            return text
    return next((text for text in reversed(said) if text), "they said nothing")


def beside_trl(part: str, folder: Path, device: str, tiny: bool) -> Result:
    """TRL's trainer on the model, prompts, reward and sizes of one of our parts, beside that part where it ran."""
    import gpu_trl

    result = gpu_trl.measure(language_experiment(part, folder, device, tiny), device)
    ours = folder / f"{part}.json"
    if not ours.exists() or not json.loads(ours.read_text())["ok"]:
        result["notes"].append(f"the part {part}, with which this is compared, did not run here")
        return result
    mine = json.loads(ours.read_text())
    own = mine["seconds_by_part"]
    for name, spent in {
        "sampling": own["sampling"],
        "scoring and update": own["scoring"] + own["update"],
    }.items():
        theirs = result["seconds_by_part"][name]
        result["notes"].append(f"{name}: {spent:.3f} s, TRL {theirs:.3f} s: {spent / theirs:.2f} of TRL's")
    # With vLLM TRL's process holds the engine as well, and ours does not.
    if "peak_mib" in result and not LANGUAGE[part].get("served"):
        share = mine["peak_mib"] / result["peak_mib"]
        result["notes"].append(
            f"memory: {mine['peak_mib']:,.0f} MiB, TRL {result['peak_mib']:,.0f} MiB: {share:.2f} of TRL's"
        )
    return result


def measured(out: Path, device: str) -> Result:
    """What a run's folder says, once it is sure that it was a run on that device whose numbers are numbers."""
    where = json.loads((out / "environment.json").read_text())["starts"][-1]["device"]
    if (where == "cpu") != (device == "cpu"):
        raise RuntimeError(f"asked for {device}, and the run computed on {where}")
    rows = [json.loads(text) for text in (out / "metrics.jsonl").read_text().splitlines()]
    broken = [
        f"{key} = {row[key]} at step {row['step']}"
        for row in rows
        for key in ("loss", "grad_norm")
        if not math.isfinite(row.get(key, 0.0))
    ]
    if broken:
        raise RuntimeError(f"not finite: {broken[0]}")
    # The first step that samples pays for what is made once: kernels, caches, the measuring of memory.
    sampling = [row for row in rows if "num_decisions" in row][1:]
    if not sampling:
        raise RuntimeError("fewer than two steps sampled anything")
    result: Result = {"tokens_per_second": {}, "seconds_by_part": {}, "notes": []}
    for part in ("sampling", "scoring", "update"):
        # What the update leaves out, members of flat groups, it does not compute.
        done = [
            (
                row["num_decisions"] * (row.get("scored_share", 1.0) if part == "update" else 1.0),
                row.get(f"seconds/{part}", 0.0),
            )
            for row in sampling
        ]
        if done := [(tokens, spent) for tokens, spent in done if tokens and spent]:
            result["seconds_by_part"][part] = statistics.median(spent for _, spent in done)
            result["tokens_per_second"][part] = statistics.median(tokens / spent for tokens, spent in done)
    gaps = [row[key] for row in sampling for key in row if key == "sampling/rescoring_difference/mean"]
    if gaps:
        result["notes"].append(
            f"scored again before its first update, the policy differs from what was sampled by {max(gaps):.2g} nats in"
            " the mean at most"
        )
    for name, unit in SERVER.items():
        if values := [row[f"sampling/{name}"] for row in rows if f"sampling/{name}" in row]:
            result["notes"].append(f"sampling/{name}: {statistics.median(values):.3g} {unit} in the median")
    if device == "cuda":
        result["peak_mib"] = max(row.get("memory/peak_mib", 0.0) for row in rows)
    return result


def with_formula(result: Result, experiment: Any, out: Path) -> Result:
    """Adds the memory that `groupwise estimate` computes for the run."""
    from groupwise.causal_lm.head_tiles import GPU_TILES
    from groupwise.estimate import Shape, Step, memory

    rows = [json.loads(text) for text in (out / "metrics.jsonl").read_text().splitlines()]
    train, settings = experiment.train, experiment.domain
    costs = settings.costs(streams=None)
    size = max(int(row.get("micro_batch_members", 0)) for row in rows) or None
    processes = json.loads((out / "environment.json").read_text())["starts"][-1]["num_processes"]
    step = Step(
        train.prompts_per_step,
        train.group_size,
        prompt_tokens=len(settings.data.source.prompts[0]),
        completion_tokens=costs.max_new_tokens,
        pass_members=size,
        processes=processes,
        sharded=train.sharding == "full" and processes > 1,
        weight_bytes=costs.weight_bytes,
        number_bytes=2,
        reference=True,
    )
    peak = memory(Shape.of(costs.config, costs.lora), step, GPU_TILES)["peak"].size / 2**20
    if "peak_mib" in result:
        result["notes"].append(f"memory: {result['peak_mib']:,.0f} MiB at most, {peak:,.0f} MiB by formula")
    return {**result, "micro_batch_members": size, "formula_mib": peak}


def tests(device: str, tiny: bool) -> Result:
    """The tests that are marked `gpu`; on a CPU the same bodies there."""
    import pytest

    chosen = ["-m", "gpu"] if device == "cuda" else ["-k", "cpu"]
    where = ROOT / "tests" / "device" / ("test_generators.py" if tiny else "")
    status = pytest.main(
        ["-q", "-p", "no:cacheprovider", "--tb=short", *chosen, str(where)], plugins=[failures := Failures()]
    )
    if status != 0:
        raise RuntimeError(
            f"{len(failures.found)} tests failed, the first: {failures.found[0]}"
            if failures.found
            else f"pytest ended with status {status:d}"
        )
    return {"notes": [f"{failures.passed} tests passed"]}


class Failures:
    """Names of the tests that failed, each with the first line of why."""

    def __init__(self) -> None:
        self.found: list[str] = []
        self.passed = 0

    def pytest_runtest_logreport(self, report: Any) -> None:
        if report.failed:
            crash = getattr(report.longrepr, "reprcrash", None)
            message = getattr(crash, "message", report.longreprtext)
            self.found.append(f"{report.nodeid}: {message.splitlines()[0]}")
        elif report.when == "call" and report.passed:
            self.passed += 1


def main(arguments: Sequence[str]) -> Result:
    """Runs a part and writes its result."""
    name, folder, device = arguments[0], Path(arguments[1]), arguments[2]
    start = time.perf_counter()
    try:
        result = {"ok": True, **run_part(name, folder, device, "--tiny" in arguments)}
    except BaseException as error:
        traceback.print_exc()
        result = {"ok": False, "why": f"{type(error).__name__}: {(str(error).splitlines() or [''])[0]}"}
    result = {"part": name, **result, "run_seconds": round(time.perf_counter() - start, 1)}
    written = folder / f"{name}.json"
    partial = written.with_suffix(".partial")
    partial.write_text(json.dumps(result, indent=1))
    partial.replace(written)
    return result


if __name__ == "__main__":
    raise SystemExit(0 if main(sys.argv[1:])["ok"] else 1)
