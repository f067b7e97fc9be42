"""Optimisers by their import path: the steps of the class itself, the same bits after a resume, one line where a class
does not fit.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file
from tests.experiment.tiny import TINY
from tests.integration.test_language_runs import cut_back
from torch import nn

from groupwise import Objective, load_experiment, resume, train
from groupwise.checkpoint import CheckpointStore
from groupwise.config import ConfigError, ImportPath
from groupwise.learner.local import LocalLearner
from groupwise.learner.optimiser_source import OptimiserSource
from groupwise.learner.protocol import StepNumbers
from groupwise.training.distributed import World
from groupwise.training.job import Recipe
from groupwise.training.optimiser_config import OptimiserConfig, OptimiserFromPath
from groupwise.training.run.preflight import check_offers

CLASSES: dict[str, dict[str, Any]] = {
    "torch.optim:SGD": {"momentum": 0.9, "weight_decay": 0.1},
    "torch.optim:RMSprop": {"centered": True},
    "torch.optim:Adafactor": {},
    "torch.optim:RAdam": {"betas": [0.8, 0.9]},
}


class NeedsAClosure(torch.optim.SGD):
    def step(self, closure):  # type: ignore[override]
        return super().step(closure)


class WithoutARate(torch.optim.Optimizer):
    def __init__(self, params: Any) -> None:
        super().__init__(params, {})


def keys(path: str, arguments: dict[str, Any], table: str = "optimiser") -> list[str]:
    """The settings as arguments of a command line."""
    own = [f"{table}.arguments.{name}={json.dumps(value)}" for name, value in arguments.items()]
    return ["controls=null", f"{table}.kind=callable", f"{table}.path={path}", *own]


@pytest.fixture
def tiny(tmp_path: Path) -> Path:
    path = tmp_path / "tiny.toml"
    path.write_text(TINY, encoding="utf-8")
    return path


@pytest.mark.parametrize("path", CLASSES)
def test_a_step_is_that_of_the_class(path: str):
    torch.manual_seed(0)
    module = nn.Sequential(nn.Linear(3, 4), nn.LayerNorm(4))
    twin = nn.Sequential(nn.Linear(3, 4), nn.LayerNorm(4))
    twin.load_state_dict(module.state_dict())
    learner = LocalLearner(module)
    learner.use_optimiser(OptimiserSource(path, CLASSES[path]))
    matrices = [parameter for parameter in twin.parameters() if parameter.dim() == 2]
    vectors = [parameter for parameter in twin.parameters() if parameter.dim() < 2]
    free = {"weight_decay": 0.0} if "weight_decay" in CLASSES[path] or path.endswith("Adafactor") else {}
    oracle = getattr(torch.optim, path.partition(":")[2])(
        [{"params": matrices}, {"params": vectors, **free}], **{"lr": 1.0, **CLASSES[path]}
    )
    for step in range(4):
        inputs, rate = torch.randn(5, 3), 0.1 / (step + 1)
        module(inputs).square().sum().backward()
        twin(inputs).square().sum().backward()
        for group in oracle.param_groups:
            group["lr"] = rate
        assert learner.step(StepNumbers(learning_rate=rate)) > 0
        oracle.step()
        oracle.zero_grad()
    for ours, theirs in zip(module.parameters(), twin.parameters(), strict=True):
        assert torch.equal(ours, theirs)


@pytest.mark.slow
def test_a_resumed_run_ends_with_the_same_bits(tiny: Path, tmp_path: Path):
    path = "torch.optim:SGD"
    changes = ["stages.grpo.num_steps=4", "checkpoint.keep_last=20"]
    experiment = load_experiment(tiny, [*changes, *keys(path, CLASSES[path])])
    whole = train(experiment, out=tmp_path / "whole").folder.path
    assert json.loads((whole / "config.json").read_text())["optimiser"]["path"] == path
    part = cut_back(whole, 5, tmp_path / "part")
    resume(part, run_code=True)
    weights = [load_file(run / "model" / "model.safetensors") for run in (whole, part)]
    assert all(torch.equal(weights[0][name], weights[1][name]) for name in weights[0])


@pytest.mark.slow
def test_a_stage_may_have_another_optimiser_than_the_one_before(tiny: Path, tmp_path: Path):
    changed = load_experiment(tiny, keys("torch.optim:SGD", {}, "stages.grpo.set.optimiser"))
    run = train(changed, out=tmp_path / "run").folder.path
    state = CheckpointStore(run / "checkpoints", changed.checkpoint).latest().load()["learner"]
    assert state["optimiser_source"]["path"] == "torch.optim:SGD"
    assert "step" not in str(state["optimiser"]["state"])


def test_moments_are_forgotten():
    learner = LocalLearner(nn.Linear(2, 2))
    learner.use_optimiser(OptimiserSource("torch.optim:SGD", {"momentum": 0.9}))
    learner.module(torch.ones(1, 2)).sum().backward()
    learner.step(StepNumbers(learning_rate=0.1))
    assert learner.optimiser.state
    learner.forget_moments()
    assert not learner.optimiser.state
    learner.use_optimiser(None)
    assert type(learner.optimiser) is torch.optim.AdamW


HERE = "tests.training.run.test_optimisers"


@pytest.mark.parametrize(
    ("path", "arguments", "message"),
    [
        ("torch.optim:Lion", {}, r"has no class 'Lion'"),
        ("torch.nn:Linear", {}, r"Linear .*Optimizer"),
        ("no_such_module:Lion", {}, r"the module 'no_such_module' cannot be imported"),
        ("torch.optim:SGD", {"lr": 0.1}, r"lr is set by the run; write optimiser.learning_rate"),
        ("torch.optim:SGD", {"momentun": 0.9}, r"optimiser.path = 'torch.optim:SGD': SGD\(groups\) failed: .*momentun"),
        ("torch.optim:Muon", {}, r"Muon\(groups\) failed: .*2D"),
        (f"{HERE}:NeedsAClosure", {}, r"its steps need a closure"),
        (f"{HERE}:WithoutARate", {}, r"its groups have no lr"),
    ],
)
def test_a_class_that_does_not_fit_is_refused_before_anything_is_sampled(
    tiny: Path, tmp_path: Path, path: str, arguments: dict[str, Any], message: str
):
    with pytest.raises(ConfigError, match=message):
        train(load_experiment(tiny, keys(path, arguments)), out=tmp_path / "run")
    assert not list(tmp_path.glob("run/checkpoints/step-*"))


def test_a_learner_without_other_optimisers_says_so():
    assert OptimiserConfig().source is None
    chosen = OptimiserFromPath(path=ImportPath("torch.optim:SGD"))
    recipe = Recipe("grpo", Objective.preset("grpo"), optimiser=chosen)
    learner = LocalLearner(nn.Linear(1, 1))
    check_offers(learner, recipe, World())
    limited = type("Limited", (), {"offers": learner.offers - {"optimisers"}})()
    with pytest.raises(ConfigError, match=r"optimiser.path = 'torch.optim:SGD': the learner Limited is not one that"):
        check_offers(limited, recipe, World())
