"""Whole runs on the device: gone on with, in half precision, in as much memory as there is, in less, and in two
processes.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from tests.integration.small import experiment, rows, save_model, weights

import groupwise
from groupwise.checkpoint import load_tree
from groupwise.config import ConfigError
from groupwise.experiment.runner import resume
from groupwise.learner.shards import read_whole
from groupwise.track import read_metrics

ON_CUDA = pytest.mark.parametrize("device", [pytest.param("cuda", marks=pytest.mark.gpu)], indirect=True)
"""What the CPU has no way to show."""


def train(
    folder: Path, device: torch.device, *settings: str, family: str = "qwen3", run: str = "run"
) -> list[dict[str, Any]]:
    """The rows of a small run."""
    model = folder / "model" if (folder / "model").is_dir() else save_model(folder / "model", family)
    loaded = experiment(model, f"train.device={device.type}", *settings)
    groupwise.train(loaded, out=folder / run)
    return list(read_metrics(folder / run / "metrics.jsonl"))


@pytest.mark.slow
def test_a_run_that_goes_on_ends_with_the_same_bits(device: torch.device, tmp_path: Path) -> None:
    """Dropout draws from the device's generator; `train.deterministic` takes kernels that repeat their sums."""
    settings = [
        "domain.model.dropout=kept",
        "train.deterministic=true",
        "train.num_steps=4",
        "checkpoint.every=2",
        "optimiser.learning_rate=1e-2",
    ]
    train(tmp_path, device, *settings, "train.updates_per_batch=2", family="gpt2")
    shutil.copytree(tmp_path / "run", tmp_path / "cut")
    for path in ("checkpoints/step-4", "model"):
        shutil.rmtree(tmp_path / "cut" / path)
    (tmp_path / "cut" / "summary.json").unlink()
    resume(tmp_path / "cut", run_code=True)
    whole, cut = (weights(tmp_path / name, 4) for name in ("run", "cut"))
    assert all(torch.equal(cut[name], value) for name, value in whole.items())
    assert rows(tmp_path / "cut") == rows(tmp_path / "run")


HALF = ["domain.model.dtype=bfloat16"]


@pytest.mark.slow
@pytest.mark.parametrize(
    "settings", [HALF, [*HALF, "domain.model.lora.r=2"], ["train.autocast=bfloat16"]], ids=" ".join
)
def test_half_precision(device: torch.device, tmp_path: Path, settings: list[str]) -> None:
    found = [
        row
        for row in train(tmp_path, device, *settings, "divergence.kind=k3", "divergence.beta=0.1", "entropy=0.01")
        if "loss" in row
    ]
    assert [row["step"] for row in found] == [1, 2]
    assert all(0 < row["grad_norm"] < 1e4 and abs(row["loss"]) < 1e3 for row in found)
    # A rounding of 4e-3 in each of two layers, on logits of tens.
    assert all(row.get("sampling/rescoring_difference/mean", 0.0) < 0.5 for row in found)


@pytest.mark.slow
def test_the_size_of_a_pass_is_measured_on_the_device(
    device: torch.device, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    limit = 64.0 if device.type == "cpu" else (torch.cuda.memory_allocated(device) + 512 * 2**20) / 2**30
    large = [
        "train.prompts_per_step=8",
        "train.group_size=32",
        "domain.sampling.max_new_tokens=40",
        "divergence.kind=k3",
    ]
    found = train(
        tmp_path,
        device,
        "train.micro_batch_members=auto",
        f"train.memory_limit_gib={limit}",
        *large,
        "track.console=lines",
    )
    assert "micro-batches of" in capsys.readouterr().out
    sizes = [int(row["micro_batch_members"]) for row in found if "micro_batch_members" in row]
    assert all(1 <= size <= 256 for size in sizes)
    if device.type == "cuda":
        assert torch.cuda.max_memory_allocated(device) <= limit * 2**30


@ON_CUDA
def test_memory_that_runs_out_is_told_in_one_line_and_auto_goes_on(device: torch.device, tmp_path: Path) -> None:
    """With the driver's word on what is free, which is more than PyTorch may take here, `auto` begins with too many and
    halves.
    """
    large = ["train.prompts_per_step=8", "train.group_size=512", "domain.sampling.max_new_tokens=40", "entropy=0.01"]
    torch.cuda.empty_cache()
    total = torch.cuda.mem_get_info(device)[1]
    torch.cuda.set_per_process_memory_fraction((torch.cuda.memory_reserved(device) + 320 * 2**20) / total, device)
    try:
        with pytest.raises(ConfigError, match="memory ran out") as caught:
            train(tmp_path, device, *large)
        assert len(str(caught.value).splitlines()) == 1
        del caught
        torch.cuda.empty_cache()
        found = train(
            tmp_path, device, *large, "train.micro_batch_members=auto", "domain.engine.max_members=64", run="fitted"
        )
        assert all(row["micro_batch_members"] < 4096 for row in found if "micro_batch_members" in row)
    finally:
        torch.cuda.set_per_process_memory_fraction(1.0, device)


def in_processes(folder: Path, size: int, run: str, *settings: str) -> None:
    """Trains the experiment of `folder/run` in processes of their own, joined by NCCL."""
    torchrun = [sys.executable, "-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={size}"]
    command = ["-m", "groupwise", "train", str(folder / "run" / "config.json"), *settings, "--out", str(folder / run)]
    done = subprocess.run([*torchrun, *command], capture_output=True, text=True, timeout=600, check=False)
    assert done.returncode == 0, done.stderr


@ON_CUDA
def test_weights_in_shards_on_all_gpus_train_as_whole_ones(device: torch.device, tmp_path: Path) -> None:
    """On one GPU the group of processes has one member, and all its collectives are NCCL's all the same."""
    settings = ["domain.model.dtype=float64", "optimiser.eps=1e-2", "train.prompts_per_step=8"]
    settings += ["train.updates_per_batch=2", "train.deterministic=true"]
    train(tmp_path, device, *settings)
    size = min(8, torch.cuda.device_count())
    in_processes(tmp_path, size, "shards", "train.sharding=full")
    started = json.loads((tmp_path / "shards" / "environment.json").read_text())["starts"][-1]
    assert started["num_processes"] == size
    whole, shards = (read_whole(load_tree(tmp_path / run / "checkpoints" / "step-2")) for run in ("run", "shards"))
    assert set(shards["learner"]["weights"]) == set(whole["learner"]["weights"])
    for name, value in whole["learner"]["weights"].items():
        torch.testing.assert_close(shards["learner"]["weights"][name], value, rtol=1e-9, atol=1e-10)


@ON_CUDA
def test_two_processes_train_as_one(device: torch.device, tmp_path: Path) -> None:
    if torch.cuda.device_count() < 2:
        pytest.skip("NCCL joins two GPUs, and there is one")
    settings = [
        "domain.model.dtype=float64",
        "optimiser.eps=1e-2",
        "train.prompts_per_step=5",
        "train.updates_per_batch=2",
        "train.deterministic=true",
    ]
    train(tmp_path, device, *settings)
    in_processes(tmp_path, 2, "two")
    assert json.loads((tmp_path / "two" / "environment.json").read_text())["starts"][-1]["num_processes"] == 2
    for name, value in weights(tmp_path / "run", 2).items():
        # Sums in another order, 1e-16 each, through two optimiser steps whose eps bounds what they magnify.
        torch.testing.assert_close(weights(tmp_path / "two", 2)[name], value, rtol=1e-9, atol=1e-10)
