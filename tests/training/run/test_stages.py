from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file
from tests.training.toy import ToyDomain, job, recipe, supervised

from groupwise.checkpoint import CheckpointConfig, load_tree
from groupwise.domain.protocol import Evaluation
from groupwise.track import read_metrics
from groupwise.training.job import Recipe
from groupwise.training.run.launch import train


@pytest.mark.parametrize(("moments", "counted"), [("kept", 3.0), ("fresh", 1.0)])
def test_a_stage_begins_with_the_moments_it_asks_for(tmp_path: Path, moments: str, counted: float) -> None:
    policy = recipe(num_steps=1)
    policy = replace(policy, optimiser=policy.optimiser.model_copy(update={"moments": moments}))
    train(job(supervised(num_steps=2), policy, checkpoint=CheckpointConfig(every=1, keep_last=9)), tmp_path / "run")
    state = load_tree(tmp_path / "run" / "checkpoints" / "step-3")["learner"]["optimiser"]["state"]
    # The parameters that both stages train have been stepped as often as the moments are old.
    assert {float(moments["step"]) for moments in state.values()} == {counted}


class Harder(ToyDomain):
    """The same policy under an examination that gives less for the same."""

    def __init__(self, parent: ToyDomain, less: float) -> None:
        super().__init__()
        self.module, self.less = parent.module, less

    def evaluate(self, *, streams: Any) -> Evaluation:
        evaluation = super().evaluate(streams=streams)
        return replace(evaluation, metrics={name: value - self.less for name, value in evaluation.metrics.items()})


def harder(stage: Recipe, less: float) -> Recipe:
    """The stage under that examination; with `less = 0` its settings differ and its numbers do not."""
    return replace(stage, adapt=lambda domain: Harder(domain, less), measures={"less": less})


def held_out(path: Path) -> list[tuple[int, str, float]]:
    return [
        (row["step"], row["stage"], row["eval/accuracy"])
        for row in read_metrics(path / "metrics.jsonl")
        if "eval/accuracy" in row
    ]


def test_a_stage_that_is_measured_otherwise_begins_with_a_measurement_of_its_own(tmp_path: Path) -> None:
    job_ = job(supervised(num_steps=3), harder(recipe("last", num_steps=2, rate=0.0), 5.0))
    summary = train(job_, tmp_path / "run").summary
    rows = held_out(tmp_path / "run")
    assert [(step, stage) for step, stage, _ in rows] == [(0, "warm_up"), (3, "warm_up"), (3, "last"), (5, "last")]
    # The weights stood still: what differs is the examination alone, and before and after are of the same one.
    assert rows[2][2] == rows[3][2] == rows[1][2] - 5.0
    assert summary["before"] == summary["after"] == rows[3][2]


def test_before_and_best_are_measured_as_the_end_is(tmp_path: Path) -> None:
    easy, hard = recipe("easy", num_steps=2, rate=0.0), harder(recipe("hard", num_steps=2, rate=0.0), 5.0)
    result = train(job(easy, hard), tmp_path / "run")
    assert result.summary["before"] == result.summary["after"] < -3
    # What is written down of the first stage is its own.
    assert held_out(tmp_path / "run")[0][2] == result.summary["after"] + 5.0
    progress = load_tree(tmp_path / "run" / "checkpoints" / "step-4")["progress"]
    assert (progress["best"], progress["best_step"]) == (progress["score"], 2)


def test_where_the_measure_changes_the_best_model_is_the_one_that_the_new_measure_begins_with(tmp_path: Path) -> None:
    path = tmp_path / "run"
    falls = recipe("falls", num_steps=4, evaluate_every=1, rate=0.2, metric="accuracy", metric_goal="min")
    train(job(falls, recipe("rises", num_steps=2, rate=0.0, metric="accuracy"), seed=1), path)
    scores = [score for _, stage, score in held_out(path) if stage == "falls"]
    assert scores.index(min(scores)) < 4, "the best model of the first stage is meant to be an earlier one"
    best, final = (load_file(path / name / "model.safetensors") for name in ("best", "model"))
    assert all(torch.equal(best[name], final[name]) for name in final)


def test_the_model_at_the_end_of_a_stage_is_kept_with_the_others(tmp_path: Path) -> None:
    stages = [supervised(num_steps=4), recipe("policy", num_steps=4)]
    result = train(job(*stages, checkpoint=CheckpointConfig(model_every=2, every=3)), tmp_path / "run")
    model_names = {path.name for path in (result.folder.path / "models").iterdir()}
    assert {"step-4", "step-6"} <= model_names
    assert "step-8" not in model_names, "that is model/"
