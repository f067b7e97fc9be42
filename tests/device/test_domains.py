"""Real runs of the four domains on the emulated device: nothing that they compute forgets where it belongs."""

from __future__ import annotations

import importlib
import json
import math
import re
from collections.abc import Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
import torch
from tests.device.emulated import DeviceError, emulated_cuda
from tests.golden_runs.runs import DOMAINS
from tests.marks import slow_but

import groupwise
from groupwise.checkpoint import load_tree
from groupwise.config import ConfigError, merge
from groupwise.objective.preset import method_names
from groupwise.track import read_metrics
from groupwise.training.config import TrainConfig
from groupwise.training.device import device_of_process, exact_arithmetic
from groupwise.training.distributed import World
from groupwise.training.step.state import Progress

SHARED = {
    "seed": 7,
    "train": {"num_steps": 2, "updates_per_batch": 2, "evaluate_every": 2},
    "checkpoint": {"every": 2},
    "track": {"console": "none"},
}

# What a step may also do, each once: other ways to score, to sample, to keep references and averages, to cut what a
# pass takes.
CASES: dict[str, tuple[str, dict[str, Any]]] = {
    "language": ("language", {"method": "grpo", "entropy": 0.01, "reference": {"kind": "ema"}}),
    "language, of a batch": (
        "language",
        {"method": "clip_cov", "trust": {"share": 0.3, "lower": -1.0}, "train": {"minibatches": 2}},
    ),
    "language, truncated": (
        "language",
        {
            "method": "dapo+tis",
            "domain": {"sampling": {"top_k": 5, "stop": ["a"]}},
            "train": {"micro_batch_members": "auto"},
        },
    ),
    "language, by generate": ("language", {"method": "gspo", "domain": {"engine": {"kind": "transformers"}}}),
    "language, bfloat16": (
        "language",
        {
            "method": "ema",
            "domain": {"model": {"dtype": "float32"}},
            "train": {"autocast": "bfloat16", "deterministic": True},
        },
    ),
    "language, resampled": (
        "language",
        {
            "method": "gdpo",
            "admission": {"kind": "resample", "max_rounds": 2},
            "train": {"gradient_checkpointing": True},
        },
    ),
    "diffusion": ("diffusion", {"method": "flow_grpo"}),
    "diffusion, exact": (
        "diffusion",
        {"method": "source_002", "domain": {"sampler": {"kind": "dance_sde"}, "transitions_at_once": 3}},
    ),
    "diffusion, guarded": ("diffusion", {"method": "grpo_guard", "train": {"weight_average": {"decay": 0.9}}}),
    "restoration": (
        "restoration",
        {"method": "grpo", "auxiliary": {"supervised": 0.3}, "train": {"demonstrations_per_step": 4}},
    ),
    "restoration, gates": (
        "restoration",
        {
            "method": "dapo",
            "domain": {"policy": {"kind": "pixels", "sigma": 0.1, "block": 8}},
            "train": {"l2_to_reference": 0.1},
        },
    ),
    "selection": ("selection", {"method": "grpo", "entropy": 0.01}),
    "selection, prefixes": ("selection", {"method": "dapo", "domain": {"prefix": {"discount": 0.5}}}),
}


def tree(domain: str, changes: dict[str, Any], folder: Path) -> dict[str, Any]:
    return merge(merge(merge(DOMAINS[domain](folder), SHARED), {"train": {"device": "cuda"}}), changes)


def train(domain: str, changes: dict[str, Any], folder: Path) -> list[Any]:
    """The run's rows, on the emulated device."""
    path = folder / "experiment.json"
    path.write_text(json.dumps(tree(domain, changes, folder)), encoding="utf-8")
    experiment = groupwise.load_experiment(path, run_code=True)
    with emulated_cuda():
        groupwise.train(experiment, out=folder / "run")
    return list(read_metrics(folder / "run" / "metrics.jsonl"))


@pytest.mark.parametrize("case", slow_but(("language", "restoration"), CASES))
def test_a_run_computes_where_it_was_asked_to(case: str, tmp_path: Path) -> None:
    rows = train(*CASES[case], tmp_path)
    assert [row["step"] for row in rows if "loss" in row] == [1, 2]
    assert all(math.isfinite(row["loss"]) and row["num_decisions"] > 0 for row in rows if "loss" in row)
    assert (
        json.loads((tmp_path / "run" / "environment.json").read_text())["starts"][-1]["device"] == "an emulated device"
    )
    # A checkpoint keeps the device's own generator, and no others.
    kept = load_tree(tmp_path / "run" / "checkpoints" / "step-2")["generators"]
    assert [len(process["cuda"]) for process in kept] == [1]


def readable(completions: Sequence[Any], **columns: Sequence[Any]) -> list[float]:
    """A reward as people write it: images are numpy arrays to it, whatever computed them."""
    images = [np.asarray(image) for image in (*completions, *columns.get("clean", ()), *columns.get("degraded", ()))]
    return [float(image.mean()) / 255 for image in images[: len(completions)]]


@pytest.mark.slow
@pytest.mark.parametrize("domain", ["diffusion", "restoration"])
def test_rewards_are_given_pictures_that_they_can_read(domain: str, tmp_path: Path) -> None:
    reward = {"kind": "callable", "path": "tests.device.test_domains:readable"}
    rows = train(domain, {"method": "grpo", "domain": {"rewards": {"readable": reward}}}, tmp_path)
    assert 0 < rows[-1]["rewards/readable/mean"] < 1


@pytest.mark.nightly
@pytest.mark.parametrize("domain", DOMAINS)
@pytest.mark.parametrize("method", method_names())
def test_every_method_in_every_domain(domain: str, method: str, tmp_path: Path) -> None:
    refused = (
        "the objective reads .* this domain supplies|this domain's decisions are continuous"
        "|learns from noised copies of what was sampled, and this domain has log-probs and no copies"
    )
    try:
        rows = train(domain, {"method": method}, tmp_path)
    except ConfigError as error:
        if re.search(refused, str(error)) is None:
            raise
    else:
        assert all(math.isfinite(row["loss"]) for row in rows if "loss" in row)


def forgetful(monkeypatch: pytest.MonkeyPatch, module: ModuleType) -> None:
    """The module as if whoever wrote it had forgotten every `device=`."""

    class Forgetful:
        def __getattr__(self, name: str) -> Any:
            value = getattr(torch, name)
            if name not in ("arange", "empty", "full", "ones", "tensor", "zeros"):
                return value
            return lambda *args, **kwargs: value(
                *args, **{key: given for key, given in kwargs.items() if key != "device"}
            )

    monkeypatch.setattr(module, "torch", Forgetful())


FORGETFUL = [
    ("groupwise.training.step.rollouts", "language"),
    ("groupwise_images.restoration.domain", "restoration"),
    ("groupwise_selection.policy.choices", "selection"),
    ("groupwise_images.diffusion.models.bare", "diffusion"),
    ("groupwise.training.step.step", "restoration"),
    ("groupwise.causal_lm.sampler", "language"),
    ("groupwise.causal_lm.scoring", "language"),
    ("groupwise.domain.language.domain", "language"),
    ("groupwise_images.diffusion.domain", "diffusion"),
    ("groupwise_selection.domain", "selection"),
]


@pytest.mark.parametrize(("name", "domain"), slow_but(FORGETFUL[:4], FORGETFUL))
def test_a_forgotten_device_is_found(name: str, domain: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    forgetful(monkeypatch, importlib.import_module(name))
    with pytest.raises((DeviceError, ConfigError), match=r"same device|give all tensors on one device"):
        train(domain, {"method": "grpo"}, tmp_path)


def test_no_gpu_for_a_process_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    with emulated_cuda():
        assert device_of_process(torch.device("cuda"), World(local_rank=0)) == torch.device("cuda", 0)
        with pytest.raises(
            ConfigError, match="process 2 of this machine has no GPU of its own, PyTorch sees 1; write 1 or fewer"
        ):
            device_of_process(torch.device("cuda"), World(rank=1, size=2, local_rank=1))


def test_a_part_lasts_until_the_device_is_done(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = [0.0]
    monkeypatch.setattr("groupwise.training.step.state.perf_counter", lambda: clock[0])

    def synchronize(device: object = None) -> None:
        clock[0] += 5.0

    with emulated_cuda():
        monkeypatch.setattr(torch.cuda, "synchronize", synchronize)
        progress = Progress()
        with progress.timed("update"):
            clock[0] += 2.0
    assert progress.seconds["update"] == 7.0


def test_settings_of_exactness_are_put_back() -> None:
    def settings() -> tuple[bool, ...]:
        return (
            torch.backends.cudnn.allow_tf32,
            torch.are_deterministic_algorithms_enabled(),
            torch.utils.deterministic.fill_uninitialized_memory,
        )

    before = settings()
    with exact_arithmetic(TrainConfig(deterministic=True), torch.device("cuda")):
        assert settings() == (False, True, False)
    with exact_arithmetic(TrainConfig(), torch.device("cuda")):
        assert settings() == (False, False, True)
    with exact_arithmetic(TrainConfig(deterministic=True), torch.device("cpu")):
        assert settings() == before
    assert settings() == before
