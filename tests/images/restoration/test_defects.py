"""The thirteen defects of source 001's public code, by their numbers in its analysis: none can happen here."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from sklearn.datasets import load_digits
from tests.images.restoration.small import EVERYTHING, GATED, TABLE, domain, gradient, nudge, sampled

from groupwise import Objective
from groupwise.checkpoint import load_tree
from groupwise.config import merge
from groupwise.experiment import load_experiment
from groupwise.experiment.runner import remarks, run
from groupwise.objective.batch import Running
from groupwise.records import Rollouts, Scored
from groupwise.statistics import finish
from groupwise.streams import Streams
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


def test_6_running_statistics_are_an_average_and_leave_the_groups_baseline() -> None:
    """(6) global statistics that replace the group baseline, and whose initial values never fade."""
    levels, spreads = (50.0, 1.0, 2.0), (100.0, 1.0, 3.0)
    for name, key in (("reward", "global_reward_std"), ("advantage", "global_centred_std")):
        objective = Objective.preset(
            "grpo",
            **{
                "advantage.kind": "running_std",
                "advantage.decay": 0.9,
                "advantage.of": name,
                "divergence.kind": "none",
            },
        )
        state = objective.init()
        for level, spread in zip(levels, spreads, strict=True):
            # Two groups five spreads apart, with members one spread apart.
            rewards = level + spread * torch.tensor([0.0, 1.0, 5.0, 6.0]).double()
            rollouts = Rollouts(
                torch.tensor([0, 0, 1, 1]),
                torch.ones(4, 1, dtype=torch.bool),
                torch.zeros(4, 1).double(),
                {"r": rewards},
                density=True,
            )
            batch = objective.prepare(rollouts, state)
            plan = objective.plan(batch)
            state = objective.observe(
                batch.state, finish(objective.loss(Scored(torch.zeros(4, 1).double()), plan).statistics)
            )
        # A weighted mean of what was seen and of nothing else: weights 0.81, 0.9 and 1, which make 2.71. There is no
        # initial value in it.
        own = (
            torch.tensor([0.0, 1.0, 5.0, 6.0]).std() if name == "reward" else torch.tensor([-0.5, 0.5, -0.5, 0.5]).std()
        )
        average = (0.81 * spreads[0] + 0.9 * spreads[1] + spreads[2]) / 2.71 * float(own)
        assert plan.constants[key] == pytest.approx(average, rel=1e-6)
        means = [level + 3 * spread for level, spread in zip(levels, spreads, strict=True)]
        assert plan.constants["global_reward_mean"] == pytest.approx(
            (0.81 * means[0] + 0.9 * means[1] + means[2]) / 2.71
        )
        # Compared inside each group, whatever its level: half a spread on either side.
        assert batch.advantage[:, 0].tolist() == pytest.approx(
            [side * 0.5 * spreads[-1] / average for side in (-1, 1, -1, 1)], rel=1e-6
        )


def test_6_the_scale_ends_where_the_rewards_are() -> None:
    """(6) what a run began with is forgotten: after 500 batches a thousandth of the first, a hundred times as wide, is
    left.
    """
    running = Running()
    for spread in (100.0, *[1.0] * 499):
        running = running.follow(mean=0.0, std=spread, centred_std=spread, decay=0.99)
    assert running.std == pytest.approx(1.0, abs=0.01)


def test_7_a_group_of_two_keeps_the_size_of_its_difference() -> None:
    """(7) groups of two whose advantage is always plus and minus 0.707."""
    objective = Objective.preset("grpo", **{"advantage.kind": "running_std", "divergence.kind": "none"})
    rewards = torch.tensor([0.0, 1.0, 0.0, 4.0]).double()
    rollouts = Rollouts(
        torch.tensor([0, 0, 1, 1]),
        torch.ones(4, 1, dtype=torch.bool),
        torch.zeros(4, 1).double(),
        {"r": rewards},
        density=True,
    )
    advantage = objective.prepare(rollouts, objective.init()).advantage[:, 0]
    assert advantage[3] / advantage[1] == pytest.approx(4)
    usual = Objective.preset("grpo", **{"divergence.kind": "none"})
    assert usual.prepare(rollouts, usual.init()).advantage[:, 0].abs().tolist() == pytest.approx(
        [0.5**0.5] * 4, rel=1e-3
    )
    for name in ("source_001_progressive", "source_001_improved"):
        chosen = load_experiment(name).spans[-1].objective.advantage
        assert (chosen.kind, chosen.baseline) == ("running_std", "group")


def test_8_the_divergence_is_the_kl_to_the_reference_and_no_second_consistency() -> None:
    """(8) a KL that is a second consistency loss."""
    given = domain({"consistency": "l1"})
    samples = sampled(given)
    nudge(given)
    scored = given.score(samples, ROWS, EVERYTHING)
    live, other = given.module(samples.payload["degraded"]), samples.payload["reference_output"]
    assert scored.exact_divergence is not None
    assert torch.allclose(scored.exact_divergence.sum(1), ((live - other) ** 2).sum((1, 2, 3)) / (2 * 0.2**2))
    assert torch.allclose(scored.auxiliary["consistency"], (live - other).abs().mean((1, 2, 3)))


# (9) adapters wrapped after loading:
# test_loading.test_an_adapter_is_in_place_before_the_weights_are_read_so_that_none_is_dropped (10) checkpoints sorted
# as text: test_loading.test_the_newest_checkpoint_is_found_by_number


def moved(folder: Path, step: int) -> torch.Tensor:
    """What `step` steps of a run of `trained` moved, all weights in a row."""
    weights = load_tree(folder / "run" / "checkpoints" / f"step-{step}")["learner"]
    start = domain({"model": {"seed": 3}}).module.state_dict()
    found = next(value for value in weights.values() if isinstance(value, dict) and set(value) == set(start))
    return torch.cat([(found[name] - start[name]).flatten() for name in start])


def test_11_the_gradient_is_clipped_after_it_is_there(tmp_path: Path) -> None:
    """(11) gradient clipping before the gradient exists: with plain gradient descent the step has exactly the length
    that the clip allows.
    """
    base = {"train": {"num_steps": 1, "prompts_per_step": 4}}
    sizes = []
    for limit in (0.1, 0.001):
        folder = tmp_path / str(limit)
        folder.mkdir()
        # An eps that dwarfs the second moment leaves AdamW's step proportional to the gradient: rate times gradient
        # over eps.
        plain = {"learning_rate": 1.0, "eps": 1e3, "weight_decay": 0.0}
        given = merge(base, {"train": {"max_grad_norm": limit}, "optimiser": plain, "checkpoint": {"every": 1}})
        assert trained(folder, given)[0]["grad_norm"] > 0.1
        sizes.append(float(moved(folder, 1).norm()))
    assert sizes == pytest.approx([0.1 / 1e3, 0.001 / 1e3], rel=0.01)


def test_12_the_learning_rate_is_used(tmp_path: Path) -> None:
    """(12) a learning rate that is ignored: AdamW's first step moves every weight by the rate of that step."""
    for rate, warm_up in ((0.004, 0), (0.004, 4), (1e-5, 0)):
        folder = tmp_path / f"{rate}-{warm_up}"
        folder.mkdir()
        optimiser = {"learning_rate": rate, "warm_up_steps": warm_up, "weight_decay": 0.0, "eps": 1e-14}
        rows = trained(
            folder,
            {"optimiser": optimiser, "train": {"num_steps": 1, "prompts_per_step": 4}, "checkpoint": {"every": 1}},
        )
        first = rate / max(warm_up, 1)
        assert rows[0]["learning_rate"] == pytest.approx(first)
        assert moved(folder, 1).abs().median() == pytest.approx(first, rel=1e-3)


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


def test_13_the_networks_output_is_supervised_and_not_the_best_of_the_group() -> None:
    """(13) supervising the best of the group: demonstrations hold no sample at all."""
    given = domain()
    shown = given.demonstrations(4, streams=Streams(0), step=0)
    assert set(shown.payload) == {"degraded", "target"}
    # The targets are scikit-learn's own digits, to the last bit.
    digits = load_digits().images / 16
    for prompt, target in zip(shown.prompts, shown.payload["target"], strict=True):
        assert torch.equal(
            target[0], torch.from_numpy(digits[int(prompt.key.removeprefix("digit-"))].astype("float32")).double()
        )
    loss = given.score(shown, torch.arange(4), frozenset()).auxiliary["supervised"]
    assert isinstance(given.score(shown, torch.arange(4), frozenset()), Scored)
    assert torch.allclose(
        loss, (given.module(shown.payload["degraded"]) - shown.payload["target"]).abs().mean((1, 2, 3))
    )
