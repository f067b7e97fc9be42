"""The defects of source 002's repository, each as a test of what happens here instead."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file

from groupwise.experiment import load_experiment
from groupwise.experiment.runner import run
from groupwise.objective import Objective
from groupwise.records import Rollouts, Scored
from groupwise.track import read_metrics
from groupwise_images.diffusion.transition import Transition

SMALL = """
method = "source_002"
[domain]
kind = "diffusion"
num_steps = 4
sampler = { kind = "cps" }
data = { source = { kind = "digits" }, num_train = 3 }
rewards = { size = { kind = "jpeg_size" } }
evaluation = { num_prompts = 1, num_images = 1, num_columns = 0 }
[domain.model]
kind = "scratch"
[domain.model.shape]
sample_size = 8
patch_size = 4
in_channels = 1
out_channels = 1
num_layers = 1
num_attention_heads = 1
attention_head_dim = 8
num_embeds_ada_norm = 10
[train]
num_steps = 2
prompts_per_step = 2
group_size = 4
updates_per_batch = 2
[optimiser]
learning_rate = 1e-2
[track]
console = "none"
rollouts_every = 1
num_rollouts = 99
"""


def ran(folder: Path, name: str, **overrides: Any) -> Path:
    (folder / f"{name}.toml").write_text(SMALL)
    run(load_experiment(folder / f"{name}.toml", overrides), folder / name)
    return folder / name


@pytest.mark.slow
def test_the_reference_takes_part_in_the_loss(tmp_path: Path) -> None:
    """It was made, mixed and never read: here its weight changes what is learned, and so does how it is mixed."""
    mixing = {"kind": "periodic", "alpha": 0.5, "sync_steps": 1}
    runs = {
        "none": ran(tmp_path, "none", divergence={"kind": "none"}),
        "frozen": ran(tmp_path, "frozen", divergence={"beta": 5.0}),
        "mixed": ran(tmp_path, "mixed", divergence={"beta": 5.0}, reference=mixing),
    }
    weights = {name: load_file(next(path.rglob("model/transformer/*.safetensors"))) for name, path in runs.items()}
    for one, other in (("none", "frozen"), ("frozen", "mixed")):
        assert any(not torch.equal(value, weights[other][key]) for key, value in weights[one].items())
    kl = {
        name: [row["kl"] for row in read_metrics(path / "metrics.jsonl") if "kl" in row] for name, path in runs.items()
    }
    assert not kl["none"]
    assert kl["frozen"][-1] > kl["mixed"][-1] > 0


def test_the_kl_of_the_source_is_available_and_is_k1_against_the_policy_that_sampled() -> None:
    objective = Objective.preset(
        "grpo", **{"divergence.kind": "k1", "divergence.against": "behaviour", "divergence.beta": 0.04}
    )
    old, new = torch.tensor([[-1.0], [-2.0]]), torch.tensor([[-1.5], [-1.75]], requires_grad=True)
    rollouts = Rollouts(
        torch.tensor([0, 0]),
        torch.ones(2, 1, dtype=torch.bool),
        old,
        {"r": [1.0, 1.0]},
        behaviour_log_prob=old,
        density=True,
    )
    loss = objective.loss(Scored(new), objective.plan(objective.prepare(rollouts, objective.init())))
    loss.total.backward()
    # Its code: beta * mean(old - new) = .04 * (.5 - .25) / 2; a gradient of -beta / N whatever the distance.
    assert float(loss.total.detach()) == pytest.approx(0.04 * (0.5 - 0.25) / 2)
    assert new.grad is not None
    assert new.grad[:, 0].tolist() == pytest.approx([-0.02, -0.02])


def test_rewards_are_logged_as_they_are_and_group_size_is_part_of_the_arithmetic(tmp_path: Path) -> None:
    path = ran(tmp_path, "logged")
    files = sorted((path / "rollouts").glob("step-*.jsonl"))
    records = [json.loads(line) for line in files[0].read_text().splitlines()]
    # Two prompts, four members each: that many images a step, in that many groups.
    assert len(records) == 8
    assert [record["group"] for record in records] == [0, 0, 0, 0, 1, 1, 1, 1]
    row = next(row for row in read_metrics(path / "metrics.jsonl") if "reward" in row)
    raw = [record["rewards"]["size"] for record in records]
    assert row["reward"] == pytest.approx(sum(raw) / 8)
    assert all(-1.0 < value < -0.1 for value in raw)
    means = [sum(raw[start : start + 4]) / 4 for start in (0, 4)]
    # The group's mean is the baseline.
    assert sum(record["advantage"] for record in records[:4]) == pytest.approx(0.0, abs=1e-6)
    assert row["groups/range"] == pytest.approx(sum(max(raw[s : s + 4]) - min(raw[s : s + 4]) for s in (0, 4)) / 2)
    assert row["groups/mean_std"] == pytest.approx(abs(means[0] - means[1]) / 2**0.5)


@pytest.mark.parametrize(("reduce", "clipped"), [("mean", 0.0), ("sqrt", 0.3)])
def test_a_clip_of_a_fifth_acts_in_our_unit_and_never_on_means(reduce: Any, clipped: float) -> None:
    """A latent of Stable Diffusion whose mean has moved by a third of a standard deviation in every element."""
    generator = torch.Generator().manual_seed(0)
    before = torch.zeros(32, 4, 32, 32)
    after = before + torch.randn(before.shape, generator=generator)
    std, size = torch.ones(32), torch.ones(32)
    direction = torch.randn(before.shape, generator=generator).sign()
    old = Transition(before, std, size).log_prob(after, reduce)
    new = Transition(before + 0.3 * direction, std, size).log_prob(after, reduce)
    # The log-ratio's own mean (-D delta^2 / 2 for a sum) is not what a clip is about.
    ratio = ((new - old) - (new - old).mean()).exp()
    share = float(((ratio < 0.8) | (ratio > 1.2)).float().mean())
    assert share == 0.0 if reduce == "mean" else share > clipped
