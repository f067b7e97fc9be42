"""A learner in another process: the loop trains it as it trains a module of its own."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file
from tests.learner.remote import Process, RemoteCopy, RemoteLearner, RemoteToy
from tests.marks import slow_but
from tests.training.toy import ToyDomain, job, recipe, supervised

from groupwise.checkpoint import CheckpointConfig
from groupwise.config import ConfigError
from groupwise.reference import EmaReference, FrozenReference
from groupwise.streams import Streams
from groupwise.testing import BrokenLaws, check_domain
from groupwise.track import read_metrics
from groupwise.training.job import Recipe
from groupwise.training.run.launch import Result, resume, train

ROOT = Path(__file__).parents[2]
KL = {"divergence.kind": "k3", "divergence.beta": 0.1}
EVERY = CheckpointConfig.model_validate({"every": 1})

BOUND = 3e-9
"""By how much weights may differ after six steps of rate .05 with eps .01, in fp64.

A gradient is a sum of fewer than 500 numbers below 1: it rounds by less than 500 * 2^-53 = 6e-14. AdamW divides by at
least eps, so that a weight moves by at most .05 * 6e-14 / .01 = 3e-13 a step, and a gradient whose derivative is below
1 magnifies what was there by at most 1 + .05 / .01 = 6: 3e-13 * (1 + 6 + ... + 6^5) = 2.8e-9.
"""


def stable(stage: Recipe) -> Recipe:
    """The stage with a large eps: Adam divides tiny gradients by tiny moments, which would magnify rounding."""
    return replace(stage, optimiser=stage.optimiser.model_copy(update={"eps": 1e-2}))


SIX = stable(recipe(num_steps=6, evaluate_every=2, objective=KL, micro_batch_members=3, updates_per_batch=2))


@pytest.fixture(scope="module")
def process() -> Iterator[Process]:
    process = Process()
    yield process
    process.end()


def trained(folder: Path, process: Process | None, *stages: Recipe, **rest: Any) -> Result:
    def build(device: torch.device) -> Any:
        return ToyDomain() if process is None else RemoteToy(process, folder / "states")

    return train(job(*stages, domain=build, **rest), folder / "run")


@pytest.fixture(scope="module")
def whole(process: Process, tmp_path_factory: pytest.TempPathFactory) -> Result:
    """A run of the remote learner that nothing interrupted."""
    return trained(tmp_path_factory.mktemp("whole"), process, SIX, checkpoint=EVERY)


def exported(result: Result) -> dict[str, torch.Tensor]:
    return load_file(result.folder.model / "model.safetensors")


def assert_near(one: Result, two: Result) -> None:
    """The weights are within the bound, and the numbers of every step too."""
    for name, weight in exported(one).items():
        torch.testing.assert_close(exported(two)[name], weight, rtol=0, atol=BOUND)
    for ours, theirs in zip(read_metrics(one.folder.metrics), read_metrics(two.folder.metrics), strict=True):
        for name in ("loss", "grad_norm", "kl", "loss_l2", "reference/distance", "eval/sampled_accuracy"):
            # Of numbers, not of weights: 8 prompts' probabilities, or a norm over 140 weights, and distances in fp32.
            assert (name in ours) == (name in theirs)
            expected = pytest.approx(ours.get(name, 0.0), rel=1e-6, abs=1e3 * BOUND)
            assert theirs.get(name, 0.0) == expected, (ours["step"], name)


CASES = {
    "accumulated_clipped_kl": [replace(SIX, train=SIX.train.model_copy(update={"max_grad_norm": 0.01}))],
    "followed_averaged_pulled": [
        replace(
            stable(
                recipe(
                    num_steps=6,
                    objective=KL,
                    minibatches=2,
                    l2_to_reference=0.1,
                    weight_average={"decay": 0.5},
                )
            ),
            reference=EmaReference(decay=0.5),
        )
    ],
    "supervised_then_sampled": [
        stable(supervised(num_steps=3, demonstrations_per_step=6)),
        stable(recipe(num_steps=3, objective={**KL, "auxiliary.supervised": 0.3, "entropy": 0.05})),
    ],
    "whole_batch": [stable(recipe(method="kl_cov", num_steps=6, objective={"trust.share": 0.3}))],
}


@pytest.mark.parametrize("name", slow_but(("accumulated_clipped_kl", "supervised_then_sampled"), CASES))
def test_a_remote_learner_ends_where_a_local_one_does(name: str, tmp_path: Path, process: Process) -> None:
    local = trained(tmp_path / "local", None, *CASES[name])
    remote = trained(tmp_path / "remote", process, *CASES[name])
    assert_near(local, remote)
    start = dict(ToyDomain().module.state_dict())
    assert all((exported(remote)[key] - start[key]).abs().max() > 1e3 * BOUND for key in start), "it was trained"
    assert local.summary["after"] == remote.summary["after"]


def test_a_gradient_that_is_a_little_wrong_leaves_the_bound(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, whole: Result
) -> None:
    plain = ToyDomain.backward
    monkeypatch.setattr(
        ToyDomain,
        "backward",
        lambda self, samples, rows, cotangents: plain(
            self, samples, rows, replace(cotangents, log_prob=cotangents.log_prob * (1 + 1e-4))
        ),
    )
    with pytest.raises(AssertionError):
        assert_near(whole, trained(tmp_path / "wrong", None, SIX))


def test_the_export_of_a_remote_learner_is_the_policy(whole: Result) -> None:
    opened = ToyDomain()
    opened.load(whole.folder.model)
    found = opened.evaluate(streams=Streams(0)).metrics
    assert found["sampled_accuracy"] == pytest.approx(
        list(read_metrics(whole.folder.metrics))[-1]["eval/sampled_accuracy"]
    )


@pytest.mark.slow
def test_a_run_that_was_killed_goes_on_from_its_path(tmp_path: Path, process: Process, whole: Result) -> None:
    code = f"from tests.learner.remote import main; main({str(tmp_path / 'killed')!r})"
    killed = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, timeout=600)
    assert killed.returncode == -signal.SIGKILL, killed.stderr
    folder = tmp_path / "killed"
    assert not (folder / "run" / "summary.json").exists()
    again = resume(
        job(SIX, domain=lambda device: RemoteToy(process, folder / "states", seed=7), checkpoint=EVERY), folder / "run"
    )
    assert_near(whole, again)


@pytest.mark.slow
def test_a_run_that_was_interrupted_goes_on_from_its_path(tmp_path: Path, process: Process, whole: Result) -> None:
    class Fails(RemoteToy):
        def sample(self, *arguments: Any, step: int, **options: Any) -> Any:
            if step == 3:
                raise RuntimeError("the line is cut")
            return super().sample(*arguments, step=step, **options)

    folder = tmp_path / "cut"
    with pytest.raises(ConfigError, match=r"Fails\.sample raised RuntimeError: the line is cut"):
        train(job(SIX, domain=lambda device: Fails(process, folder / "states"), checkpoint=EVERY), folder / "run")
    # Other weights, which the checkpoint has to replace.
    again = resume(
        job(SIX, domain=lambda device: RemoteToy(process, folder / "states", seed=7), checkpoint=EVERY), folder / "run"
    )
    assert_near(whole, again)


@pytest.mark.parametrize(
    ("changes", "lacks", "words"),
    [
        ({"weight_average": {}}, "mixing", "train.weight_average: the learner Lacking is not one that mixes"),
        ({"weight_average": {}}, "copies", "train.weight_average: the learner Lacking is not one that keeps a second"),
        ({"max_grad_norm": 1.0}, "clipping", "train.max_grad_norm = 1.0: the learner Lacking is not one that clips"),
        ({"l2_to_reference": 0.1}, "pull", "train.l2_to_reference = 0.1: the learner Lacking is not one that pulls"),
        ({"micro_batch_members": "auto", "memory_limit_gib": 4}, "", "write a number of members"),
        ({"gradient_checkpointing": True}, "", "this model does not offer it; set it to false"),
    ],
)
def test_a_stage_that_needs_more_than_the_learner_offers_is_refused_at_the_start(
    changes: dict[str, Any], lacks: str, words: str, tmp_path: Path, process: Process
) -> None:
    class Lacking(RemoteLearner):
        offers = RemoteLearner.offers - {lacks}

    def build(device: torch.device) -> RemoteToy:
        domain = RemoteToy(process, tmp_path)
        domain.learner = learner
        return domain

    learner = Lacking(process, tmp_path)
    stage = replace(recipe(objective=KL, **changes), reference=FrozenReference())
    with pytest.raises(ConfigError) as caught:
        train(job(stage, domain=build), tmp_path / "run")
    assert words in str(caught.value)
    assert "\n" not in str(caught.value)
    assert learner.num_steps == 0


def test_the_laws_hold(tmp_path: Path, process: Process) -> None:
    check_domain(RemoteToy(process, tmp_path))


class _HalfGradient(RemoteToy):
    def backward(self, samples: Any, rows: Any, cotangents: Any) -> Any:
        return super().backward(samples, rows[:1], cotangents.select(torch.tensor([0])))


class _Uphill(RemoteToy):
    def backward(self, samples: Any, rows: Any, cotangents: Any) -> Any:
        return super().backward(samples, rows, replace(cotangents, log_prob=-cotangents.log_prob))


class _Wrong(RemoteLearner):
    fault = ""

    def zero_gradients(self) -> None:
        if self.fault != "zero":
            super().zero_gradients()

    def restore(self, record: Any) -> None:
        if self.fault != "restore":
            super().restore(record)

    def copy(self, *, adapter_off: bool = False) -> RemoteCopy:
        copy = super().copy(adapter_off=adapter_off)
        if self.fault == "copy":
            copy.active = torch.no_grad  # type: ignore[method-assign, assignment]
        return copy

    def step(self, numbers: Any) -> float:
        norm = super().step(numbers)
        return 2 * norm + 1 if self.fault == "norm" else norm


@pytest.mark.parametrize(
    ("fault", "words"),
    [
        ("half", "backward: two halves of the members add up to another gradient than the whole"),
        ("uphill", "backward: a step along it raises the sum of cotangents and fields"),
        ("zero", "learner.zero_gradients: a gradient is there after it"),
        ("restore", "learner.restore: after it the policy scores otherwise than when it was recorded"),
        ("copy", "learner.copy: within active() the policy does not score as when the copy was made"),
        ("norm", "learner.zero_gradients: a gradient is there after it"),
    ],
)
def test_a_planted_fault_breaks_a_law(fault: str, words: str, tmp_path: Path, process: Process) -> None:
    domain = {"half": _HalfGradient, "uphill": _Uphill}.get(fault, RemoteToy)(process, tmp_path)
    if fault not in ("half", "uphill"):
        learner = _Wrong(process, tmp_path)
        learner.fault = fault
        domain.learner = learner
    with pytest.raises(BrokenLaws) as caught:
        check_domain(domain)
    assert words in str(caught.value)
