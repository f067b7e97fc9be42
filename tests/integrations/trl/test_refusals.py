"""What TRL trainer cannot give, the window of an optimiser step, and several processes."""

import os
import subprocess
import sys
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file
from tests.integrations.trl import tiny
from tests.integrations.trl.process_worker import OBJECTIVES
from trl import GRPOConfig
from trl import GRPOTrainer as TRLTrainer

from groupwise.objective import Objective
from groupwise.records import Rollouts, Scored
from groupwise_trainers.trl.keys import DECIDED, refusals, remarks
from groupwise_trainers.trl.rollouts import Window
from groupwise_trainers.trl.version import missing

pytestmark = pytest.mark.slow


def said(tmp_path: Path, name: str, edits: dict[str, Any], keys: dict[str, Any], own_sampler: bool = False) -> str:
    return "; ".join(refusals(Objective.preset(name, **edits), tiny.settings(tmp_path, **keys), own_sampler))


@pytest.mark.parametrize(
    ("name", "edits", "keys", "expected"),
    [
        ("dapo", {}, {}, "admission.kind = 'resample' draws further prompts until the batch is full"),
        ("grpo+tis", {}, {}, "correction.kind = 'truncate' needs the log-probs of another sampler"),
        ("dppo_tv", {}, {"top_p": 0.9, "top_k": 5}, "with top_p = 0.9, top_k = 5 TRL does not say what that was"),
        ("grpo", {"divergence.kind": "exact"}, {}, "reads Scored.exact_divergence"),
        ("grpo_guard", {}, {}, "reads Scored.mean_shift"),
        ("grpo", {"credit.inverse_step": {}}, {}, "step_size"),
        ("grpo", {"auxiliary": {"supervised": 0.1}}, {}, "auxiliary.supervised needs data"),
        ("grpo", {"advantage.kind": "per_prompt"}, {}, "reads reward_history, which TRL does not record"),
        ("grpo", {}, {"gradient_accumulation_steps": 4, "steps_per_generation": 2}, ""),
        (
            "bnpo",
            {"aggregation.kind": "prompt_mean"},
            {"per_device_train_batch_size": 3, "num_generations": 6, "steps_per_generation": 4},
            "",
        ),
    ],
    ids=str,
)
def test_what_trl_cannot_give_is_refused_with_a_reason(
    tmp_path: Path, name: str, edits: dict[str, Any], keys: dict[str, Any], expected: str
) -> None:
    found = said(tmp_path, name, edits, keys)
    assert expected in found
    assert bool(found) == bool(expected)
    assert not expected or "write" in found or "leave" in found


def test_groups_across_processes_have_no_mean_over_prompts(tmp_path: Path) -> None:
    args = tiny.settings(tmp_path, num_generations=8)
    args.steps_per_generation = 1  # as with two processes, each of which holds four of the eight members
    args.gradient_accumulation_steps = 1
    assert "cut inside a group of 8" in "; ".join(
        refusals(Objective.preset("bnpo", **{"aggregation.kind": "prompt_mean"}), args, False)
    )
    assert not list(refusals(Objective.preset("bnpo"), args, False))


def test_a_sampler_that_records_can_be_corrected(tmp_path: Path) -> None:
    assert not said(tmp_path, "grpo+tis", {}, {}, own_sampler=True)
    assert not said(tmp_path, "dppo_tv", {}, {})


def test_which_key_wins_is_said(tmp_path: Path) -> None:
    args = tiny.settings(tmp_path)
    assert "write 'aggregation.length': 6 for TRL's" in "; ".join(remarks(Objective.preset("dr_grpo"), args))
    assert not list(remarks(Objective.preset("dr_grpo", **{"aggregation.length": 6}), args))
    args.sync_ref_model = True
    assert "sync_ref_model has no effect" in "; ".join(remarks(Objective.preset("gspo"), args))
    args.sync_ref_model, args.use_vllm = False, True
    assert "is not corrected" in "; ".join(remarks(Objective.preset("gspo"), args))


@pytest.mark.parametrize(
    ("version", "expected"),
    [
        (None, "TRL 1.16 or a later 1.x, which is not installed"),
        ("1.15.2", "and 1.15.2 is installed"),
        ("2.0.0", "and 2.0.0 is installed"),
    ],
)
def test_trl_that_is_absent_or_another_is_named_with_what_to_write(
    tmp_path: Path, version: str | None, expected: str
) -> None:
    (tmp_path / "trl.py").write_text("raise ImportError('absent')" if version is None else f"__version__ = '{version}'")
    code = f"import sys; sys.path.insert(0, {str(tmp_path)!r})\nimport groupwise_trainers.trl"
    process = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert expected in process.stderr
    assert "pip install 'trl>=1.16,<2'" in process.stderr


def test_a_newer_trl_is_checked_by_what_is_used_and_told(tmp_path: Path) -> None:
    """A trainer of a later version: one method renamed, and a key that the objective decides gone."""
    keys = {field.name for field in fields(GRPOConfig)}
    assert not list(missing(TRLTrainer, keys, set(DECIDED)))

    class Later(TRLTrainer):
        _compute_loss = None

    gone = list(missing(Later, keys - {"epsilon"}, set(DECIDED)))
    assert gone == ["GRPOConfig.epsilon", "GRPOTrainer._compute_loss"]


# The loss of one of TRL's optimiser steps where the policy finds a sampled token impossible.


pytest.importorskip("trl")


@pytest.mark.parametrize("value", [float("-inf"), float("nan")])
@pytest.mark.parametrize(("name", "mean_entropy"), [("bnpo", False), ("kl_cov", False), ("bnpo", True)])
def test_an_impossible_token_is_no_nan_loss(name: str, mean_entropy: bool, value: float) -> None:
    """The first pass over a generation is on-policy: the old log-prob is the live one, here not finite in both."""
    objective = Objective.preset(name, **({"entropy": 0.5} if mean_entropy else {}))
    mask = torch.ones(4, 2, dtype=torch.bool)
    batch = objective.prepare(
        Rollouts(torch.tensor([0, 0, 1, 1]), mask, torch.zeros(4, 2), {"right": [1.0, 0.0, 0.0, 1.0]}),
        objective.init(),
    )
    live = torch.full((4, 2), -1.0, requires_grad=True)
    place = torch.zeros(4, 2, dtype=torch.bool)
    place[0, 0] = True
    rows = [torch.arange(2), torch.arange(2, 4)]

    def scored(index: int) -> Scored:
        entropy = torch.where(place, value, torch.full((4, 2), 0.8))[rows[index]] if mean_entropy else None
        return Scored(torch.where(place, value, live)[rows[index]], entropy)

    window = Window.open(
        objective, batch, rows, True, objective.init(), lambda total: total, scored, mean_entropy=mean_entropy
    )
    total = window.loss(scored(0)) + window.loss(scored(1))
    assert bool(total.isfinite())
    (gradient,) = torch.autograd.grad(total, live)
    assert bool(gradient.isfinite().all())
    assert gradient[0, 0] == 0
    assert gradient[0, 1] < 0 < gradient[1, 0]
    assert window.metrics(lambda total: total)["log_prob/not_finite"] == 1


# Two processes of TRL's trainer, joined by gloo, train as one does: groups lie across them.


ROOT = Path(__file__).resolve().parents[3]


@pytest.mark.nightly
def test_two_processes_are_one(tmp_path: Path) -> None:
    tiny.model(tmp_path / "model")
    environment = os.environ | {"PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
    launcher = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node"]
    for processes in ("1", "2"):
        command = [*launcher, processes, "-m", "tests.integrations.trl.process_worker", str(tmp_path)]
        found = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True)
        assert found.returncode == 0, found.stderr[-4000:]
    one, two = (load_file(tmp_path / f"gradients-{world}.safetensors") for world in (1, 2))
    assert set(one) == set(two)
    for name in OBJECTIVES:
        for place in range(2):
            expected = one[f"{name}/{place}"]
            assert expected.norm() > 1e-4, name
            assert float((two[f"{name}/{place}"] - expected).norm()) <= 1e-4 * float(expected.norm()), name
        assert torch.allclose(two[f"{name}/logged"], one[f"{name}/logged"], rtol=1e-4, atol=1e-5), name
