"""The thirteen defects of source 001's public code, by their numbers in its analysis: none can happen here."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from tests.images.restoration.small import GATED, TABLE, domain, gradient, sampled

from groupwise.config import merge
from groupwise.experiment import load_experiment
from groupwise.experiment.runner import remarks, run
from groupwise.track import read_metrics
from groupwise_images.restoration.network import Gated

ROWS = torch.arange(6)
CALM = {"divergence": {"kind": "none"}, "seed": 3, "checkpoint": {"every": 100}, "track": {"console": "none"}}


def trained(folder: Path, table: dict[str, Any], domain_table: dict[str, Any] = TABLE) -> list[dict[str, Any]]:
    run(load_experiment_from(folder, merge({**CALM, "domain": domain_table}, table)), folder / "run")
    return [row for row in read_metrics(folder / "run" / "metrics.jsonl") if "loss" in row]


def load_experiment_from(folder: Path, table: dict[str, Any]) -> Any:
    (folder / "table.json").write_text(json.dumps(table))
    return load_experiment(folder / "table.json", run_code=True)


def test_1_inference_uses_what_the_policy_learnt() -> None:
    """(1) policy heads that inference never uses."""
    given = domain(table=GATED)
    before = given.evaluate(streams=None).metrics  # type: ignore[arg-type]
    with torch.no_grad():
        given.module.head.bias[:3] = 2.0
    assert given.evaluate(streams=None).metrics != before  # type: ignore[arg-type]


def test_2_the_start_is_the_plain_network() -> None:
    """(2) a start that destroys the image."""
    given = domain(table=GATED)
    network = given.module
    images = torch.rand(2, 1, 8, 8, dtype=torch.float64)
    plain = network.stack(images)
    assert torch.equal(network(images), plain)
    # What is drawn there lies around it as well: Beta(0.69, 0.69) has its peaks at 0 and 1, where a band of the
    # correction is gone, or there twice.
    gates = sampled(given, group_size=200, reference=False).payload["gates"]
    assert gates.mean() == pytest.approx(0.5, abs=0.02)
    assert gates.std() < 0.15
    assert gates.min() > 0.05
    assert gates.max() < 0.95


@pytest.mark.parametrize("size", [8, 31, 256, 300])
def test_3_actions_have_an_effect_at_every_size(size: int) -> None:
    """(3) actions without effect below 256 pixels."""
    network = Gated(width=2, depth=1, bands=2).build()
    images = torch.rand(1, 1, size, size)
    for gate in range(2):
        moved = torch.full((1, 2), 0.5)
        moved[0, gate] = 0.8
        assert not torch.equal(network(images, controls=moved), network(images))


def test_4_no_gradient_flows_through_the_sample() -> None:
    """(4) a path gradient through a reparametrised sample inside a score-function loss: the gradient by the mean is the
    score alone.
    """
    given = domain()
    samples = sampled(given)
    assert not samples.payload["action"].requires_grad
    given.score(samples, ROWS, frozenset({"log_prob"})).log_prob.sum().backward()
    found = gradient(given)
    mean = given.module(samples.payload["degraded"])
    mean.backward((samples.payload["action"] - mean.detach()) / 0.2**2)
    assert torch.allclose(found, gradient(given), atol=1e-9)


def test_5_the_ratio_leaves_one_and_the_clip_acts(tmp_path: Path) -> None:
    """(5) a ratio identically one, so that no clip can act."""
    rows = trained(
        tmp_path,
        {
            "trust": {"low": 0.01, "high": 0.01},
            "optimiser": {"learning_rate": 0.01},
            "train": {"num_steps": 3, "prompts_per_step": 4, "updates_per_batch": 4},
        },
    )
    assert rows[-1]["clip_ratio/low_mean"] + rows[-1]["clip_ratio/high_mean"] > 0


# Those of the advantage, the loss, the clip and the rate (6 to 8, 11 to 13): test_source_001, which computes
# two whole steps by hand. (9) adapters wrapped after loading:
# test_loading.test_an_adapter_is_in_place_before_the_weights_are_read_so_that_none_is_dropped. (10) checkpoints sorted
# as text: test_loading.test_the_newest_checkpoint_is_found_by_number.


@pytest.mark.slow
def test_12_a_warm_up_longer_than_its_stage_is_said(tmp_path: Path) -> None:
    """(12) a warm-up longer than the stage, whose steps are those of the loop and not of its updates."""
    for updates, warm_up, said in ((1, 50, True), (4, 10, True), (4, 4, True), (4, 3, False)):
        train = {"num_steps": 4, "updates_per_batch": updates}
        long = load_experiment_from(
            tmp_path, {**CALM, "domain": TABLE, "optimiser": {"warm_up_steps": warm_up}, "train": train}
        )
        wanted = f"warm_up_steps = {warm_up} is no shorter than the stage (4 steps)"
        assert any(wanted in each for each in remarks(long)) is said
    for name in ("source_001_progressive", "source_001_improved"):
        for span in load_experiment(name).spans:
            assert span.optimiser.warm_up_steps <= span.train.num_steps / 4, span.name
