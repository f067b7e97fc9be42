"""One part of `gpu.py`, in this process: a real run (or the tests), what it took written to `FOLDER/NAME.json`.

python benchmarks/gpu_part.py NAME FOLDER cuda|cpu [--tiny]
"""

from __future__ import annotations

import json
import math
import shutil
import statistics
import sys
import tempfile
import time
import traceback
from collections.abc import Sequence
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
Result = dict[str, Any]

RUNS = {
    # The stages, the rewards and the evaluations of the default, fewer steps of each.
    "language": ["stages.warm_up.num_steps=60", "stages.grpo.num_steps=10", "stages.grpo.set.train.evaluate_every=5"],
    "diffusion": ["stages.warm_up.num_steps=40", "stages.grpo.num_steps=5"],
    "restoration": ["stages.supervised.num_steps=80", "stages.grpo.num_steps=10", "domain.evaluation.repeats=1"],
    "selection": ["train.num_steps=20"],
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
}
QWEN = {
    "qwen_lora": {"model": {"dtype": "bfloat16", "lora": {"r": 16, "alpha": 32}}},
    "qwen_full": {"model": {"dtype": "bfloat16"}},
    "qwen_autocast": {"model": {"dtype": "float32"}, "autocast": "bfloat16"},
}


def qwen_shape(tiny: bool) -> dict[str, Any]:
    """Qwen2.5-0.5B's configuration, or its family in small."""
    if tiny:
        return {
            "vocab_size": 320,
            "hidden_size": 32,
            "intermediate_size": 64,
            "num_hidden_layers": 2,
            "num_attention_heads": 2,
            "num_key_value_heads": 1,
        }
    return {
        **{
            "vocab_size": 151936,
            "hidden_size": 896,
            "intermediate_size": 4864,
            "num_hidden_layers": 24,
            "num_attention_heads": 14,
            "num_key_value_heads": 2,
        },
        **{"max_position_embeddings": 32768, "rope_theta": 1e6, "rms_norm_eps": 1e-6},
    }


def save_qwen(folder: Path, tiny: bool) -> Path:
    """A model folder of that shape with random weights in bfloat16, whose tokenizer knows the bytes and nothing more;
    made once.
    """
    import torch
    from tokenizers import pre_tokenizers
    from transformers import Qwen2Config, Qwen2ForCausalLM, Qwen2Tokenizer

    if folder.is_dir():
        return folder
    shape, end = qwen_shape(tiny), "<|endoftext|>"
    bytes_of_text = {character: row for row, character in enumerate(sorted(pre_tokenizers.ByteLevel.alphabet()))}
    tokenizer = Qwen2Tokenizer(
        vocab={**bytes_of_text, end: 256}, merges=[], unk_token=end, eos_token=end, pad_token=end
    )
    torch.manual_seed(0)
    model = Qwen2ForCausalLM(
        Qwen2Config(**shape, tie_word_embeddings=True, pad_token_id=256, eos_token_id=256, bos_token_id=None)
    )
    partial = Path(tempfile.mkdtemp(dir=folder.parent))
    model.to(torch.bfloat16).save_pretrained(partial)
    tokenizer.save_pretrained(partial)
    return partial.rename(folder)


def qwen_experiment(name: str, folder: Path, device: str, tiny: bool) -> dict[str, Any]:
    """Ten steps of 8 groups of 8, 128 tokens after 128, with a KL to a reference so that there is something
    to score.
    """
    size = (
        {"prompts": 2, "group": 2, "prompt": 4, "new": 4, "steps": 2}
        if tiny
        else {"prompts": 8, "group": 8, "prompt": 128, "new": 128, "steps": 10}
    )
    settings = QWEN[name]
    # A token a letter; the first two tell the prompts apart.
    texts = [f"{text:02d}" + "a" * (size["prompt"] - 2) for text in range(4 * size["prompts"])]
    train = {
        "num_steps": size["steps"],
        "prompts_per_step": size["prompts"],
        "group_size": size["group"],
        "device": device,
    }
    # On a GPU the size of a pass is found by measuring what is free.
    train |= {"micro_batch_members": "auto", "autocast": settings.get("autocast", "none")} | (
        {"memory_limit_gib": 64.0} if device == "cpu" else {}
    )
    return {
        "name": name,
        "method": "grpo",
        "domain": {
            "kind": "language",
            "model": {"kind": "pretrained", "path": str(save_qwen(folder / "model", tiny)), **settings["model"]},
            "data": {"source": {"kind": "texts", "prompts": texts}, "num_held_out": 1},
            "rewards": {"differs": {"kind": "callable", "path": "groupwise.estimate.calibration:differs"}},
            "sampling": {"max_new_tokens": size["new"]},
            "evaluation": {"sampled": False},
        },
        "train": train,
        "optimiser": {"learning_rate": 1e-5},
        "checkpoint": {"every": 10**6},
        "track": {"console": "none"},
    }


def run_part(name: str, folder: Path, device: str, tiny: bool) -> Result:
    """The part's run: what it measured; raises what breaks it."""
    if name == "tests":
        return tests(device, tiny)
    from groupwise import load_experiment, train

    path, out = folder / f"{name}-experiment.json", folder / f"{name}-run"
    shutil.rmtree(out, ignore_errors=True)
    if name in QWEN:
        path.write_text(json.dumps(qwen_experiment(name, folder, device, tiny)))
        experiment = load_experiment(path, run_code=True)
    else:
        experiment = load_experiment(
            name, [*RUNS[name], *(SMALL[name] if tiny else []), f"train.device={device}", "track.console=none"]
        )
    train(experiment, out=out)
    # Gigabytes, and nothing that is measured.
    for heavy in ("model", "checkpoints", "controls"):
        shutil.rmtree(out / heavy, ignore_errors=True)
    return measured(out, device) if name not in QWEN else with_estimate(measured(out, device), experiment, out)


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
    if device == "cuda":
        result["peak_mib"] = max(row.get("memory/peak_mib", 0.0) for row in rows)
    return result


def with_estimate(result: Result, experiment: Any, out: Path) -> Result:
    """Beside what `groupwise estimate --gpu` foretells for this device, by its documented peaks."""
    import torch

    from groupwise.estimate.estimate import estimate
    from groupwise.estimate.machine import GPUS, documented_machine
    from groupwise.estimate.memory import Numbers
    from groupwise.estimate.shape import read_shape
    from groupwise.estimate.work import Step

    name = torch.cuda.get_device_name() if torch.cuda.is_available() else "none"
    known = next((gpu for gpu in GPUS if gpu.lower() in name.lower().replace(" ", "")), "H200")
    rows = [json.loads(text) for text in (out / "metrics.jsonl").read_text().splitlines()]
    train, settings = experiment.train, experiment.domain
    length = len(settings.data.source.prompts[0])
    step = Step(
        train.prompts_per_step,
        train.group_size,
        prompt_tokens=length,
        completion_tokens=statistics.mean(
            row["completions/mean_length"] for row in rows if "completions/mean_length" in row
        ),
        longest=settings.sampling.max_new_tokens,
        micro_batch=max(int(row.get("micro_batch_members", 0)) for row in rows) or None,
        reference=True,
    )
    lora = settings.model.lora
    numbers = Numbers(2 if settings.model.dtype == "bfloat16" else 4, 2, None if lora is None else lora.r)
    found = estimate(read_shape(settings.model.path), step, documented_machine(known, half=True), numbers=numbers)
    for part, foretold in found.seconds.items():
        if part in result["seconds_by_part"]:
            took = result["seconds_by_part"][part]
            flops = (found.work[part].layer_flops + found.work[part].head_flops) / took / GPUS[known].bf16
            result["notes"].append(
                f"{part}: {took:.3f} s, foretold for {known} {foretold:.3f} s; {100 * flops:.1f} % of its bf16 peak"
            )
    if "peak_mib" in result:
        result["notes"].append(
            f"memory: {result['peak_mib']:,.0f} MiB at most, foretold {found.bytes['peak'] / 2**20:,.0f} MiB"
        )
    return {**result, "micro_batch_members": step.micro_batch, "foretold_seconds": dict(found.seconds)}


def tests(device: str, tiny: bool) -> Result:
    """The tests that are marked `gpu`; on a CPU the same bodies there."""
    import pytest

    chosen = ["-m", "gpu"] if device == "cuda" else ["-m", "not gpu and not slow", "-k", "cpu"]
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
    (folder / f"{name}.json").write_text(json.dumps(result, indent=1))
    return result


if __name__ == "__main__":
    raise SystemExit(0 if main(sys.argv[1:])["ok"] else 1)
