"""The objective as a whole: what it asks for, what it refuses at run time, its metrics, and its state."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import pytest
import torch
from tests.laws import build, outcome, plan_of, prepared, world

from groupwise.objective import Objective
from groupwise.objective.batch import Running
from groupwise.records import Rollouts, Scored
from groupwise.statistics import finish


def make(**slots: Any) -> Objective:
    objective = build(**slots)
    assert objective is not None
    return objective


@pytest.mark.parametrize(
    ("slots", "fields", "rollout_fields"),
    [
        ({}, {"log_prob", "entropy"}, set()),
        ({"credit": {"gradient_adaptive": {"signal": "score_norm"}}}, {"log_prob", "entropy", "score_norm"}, set()),
        ({"divergence": {"kind": "exact"}}, {"log_prob", "entropy", "exact_divergence"}, set()),
        ({"divergence": {"kind": "k3"}}, {"log_prob", "entropy"}, {"reference_log_prob"}),
        ({"divergence": {"kind": "k3", "beta": 0.0}}, {"log_prob", "entropy"}, set()),
        ({"divergence": {"kind": "k3", "against": "behaviour"}}, {"log_prob", "entropy"}, set()),
        ({"correction": {"kind": "mask"}}, {"log_prob", "entropy"}, {"behaviour_log_prob"}),
        ({"credit": {"gradient_adaptive": {}}}, {"log_prob", "entropy"}, set()),
        ({"trust": {"kind": "dppo"}}, {"log_prob", "entropy"}, set()),
        ({"ratio": {"kind": "transition"}}, {"log_prob", "entropy", "mean_shift"}, set()),
        ({"credit": {"inverse_step": {}}}, {"log_prob", "entropy"}, {"step_size"}),
        ({"divergence": {"kind": "k1", "place": "reward"}}, {"log_prob", "entropy"}, {"reference_log_prob"}),
        ({"entropy": 0.0}, {"log_prob"}, set()),
    ],
    ids=lambda value: str(sorted(value) if isinstance(value, set) else value),
)
def test_an_objective_requires_the_fields_its_slots_read(
    slots: dict[str, Any], fields: set[str], rollout_fields: set[str]
) -> None:
    objective = make(**slots)
    assert objective.requires == fields
    assert objective.requires_rollouts == rollout_fields
    assert objective.needs_reference == (
        "reference_log_prob" in rollout_fields or slots.get("divergence") == {"kind": "exact"}
    )


@pytest.mark.parametrize(
    ("slots", "scope"),
    [
        ({}, "decision"),
        ({"smoothing": {"kind": "ema"}}, "member"),
        ({"ratio": {"kind": "geometric"}}, "member"),
        ({"credit": {"temporal_decay": {}}}, "member"),
        ({"correction": {"kind": "mask"}}, "decision"),
        ({"trust": {"kind": "gaussian"}}, "decision"),
        ({"ratio": {"kind": "transition"}}, "decision"),
        ({"trust": {"kind": "gmpo"}}, "member"),
        ({"trust": {"kind": "kl_cov"}}, "batch"),
        ({"trust": {"kind": "clip_cov"}, "smoothing": {"kind": "ema"}}, "batch"),
    ],
    ids=lambda value: str(sorted(value) if isinstance(value, set) else value),
)
def test_scope(slots: dict[str, Any], scope: str) -> None:
    assert make(**slots).scope == scope


def test_missing_and_misshapen_scores_are_named() -> None:
    inputs = world()
    objective = make(credit={"gradient_adaptive": {"signal": "score_norm"}})
    plan, scored = plan_of(objective, inputs), inputs.scored()
    with pytest.raises(ValueError, match=r"Scored.score_norm is missing.*requires"):
        objective.loss(Scored(scored.log_prob, scored.entropy, auxiliary=scored.auxiliary), plan)
    with pytest.raises(ValueError, match=r"Scored.log_prob has shape \[2, 5\].*\[7, 5\]; pass plan.select"):
        objective.loss(scored.select(torch.tensor([0, 1])), plan)
    with pytest.raises(ValueError, match=r"Scored.auxiliary\['supervised'\] is missing"):
        objective.loss(Scored(scored.log_prob, scored.entropy, score_norm=scored.score_norm), plan)
    with pytest.raises(ValueError, match="one sum a member"):
        objective.loss(
            Scored(
                scored.log_prob, scored.entropy, score_norm=scored.score_norm, auxiliary={"supervised": torch.zeros(3)}
            ),
            plan,
        )


def test_metrics_of_the_loss_by_direct_computation() -> None:
    # A = +-1/sqrt 2. Ratios 1.5 and 1 of the good member, 0.5 (clipped) and 2 of the bad one.
    objective = Objective.preset("grpo", entropy=0.1)
    old = torch.full((2, 2), -3.0, dtype=torch.float64)
    log_prob = old + torch.tensor([[1.5, 1.0], [0.5, 2.0]], dtype=torch.float64).log()
    reference = log_prob + math.log(2.0)
    rollouts = Rollouts(
        torch.tensor([0, 0]),
        torch.ones(2, 2, dtype=torch.bool),
        old,
        {"correct": [1.0, 0.0]},
        reference_log_prob=reference,
    )
    plan = objective.plan(objective.prepare(rollouts, objective.init()))
    numbers = finish(
        objective.loss(Scored(log_prob, entropy=torch.full((2, 2), 0.5, dtype=torch.float64)), plan).statistics
    )
    root, kl = 1 / math.sqrt(2), 1 - math.log(2.0)
    policy = -root * (1.2 + 1.0 - 0.8 - 2.0) / 4
    expected = {
        "loss_pg": policy,
        "kl": kl,
        "loss_kl": 0.04 * kl,
        "entropy": 0.5,
        "loss": policy + 0.04 * kl - 0.1 * 0.5,
        "zero_gradient_fraction/positive": 0.5,
        "zero_gradient_fraction/negative": 0.5,
        "clip_ratio/low_mean": 0.25,
        "clip_ratio/high_mean": 0.25,
        "on_policy_fraction": 0.25,
        "effective_sample_size": 25 / (4 * (2.25 + 1 + 0.25 + 4)),
    }
    assert {name: numbers[name] for name in expected} == pytest.approx(expected, abs=1e-12)
    assert numbers["ratio/p1"] == pytest.approx(0.5, rel=0.011)
    assert numbers["ratio/p99"] == pytest.approx(2.0, rel=0.011)
    brief = objective.plan(objective.prepare(rollouts, objective.init()), detail=False)
    assert "ratio/p1" not in finish(objective.loss(Scored(log_prob, entropy=old), brief).statistics)


def test_correction_weighs_the_policy_term_and_nothing_else() -> None:
    inputs = world()
    plain, corrected = outcome(make(), inputs), outcome(make(correction={"kind": "truncate", "maximum": 1e-9}), inputs)
    torch.testing.assert_close(corrected.gradients["entropy"], plain.gradients["entropy"])
    torch.testing.assert_close(corrected.gradients["log_prob"], 0 * plain.gradients["log_prob"], rtol=0, atol=1e-8)
    assert corrected.metrics["correction/mean"] == pytest.approx(1e-9)


def test_a_supervised_stage_has_no_policy_term() -> None:
    inputs = world()
    supervised_outcome = outcome(make(policy_weight=0.0, entropy=0.0), inputs)
    assert not supervised_outcome.gradients["log_prob"].any()
    # Coefficient 0.5 over the counts 3 + 2 + 5.
    torch.testing.assert_close(
        supervised_outcome.gradients["auxiliary.supervised"], torch.full((7,), 0.05, dtype=torch.float64)
    )
    assert supervised_outcome.metrics["loss_sup"] == pytest.approx(0.05 * float(inputs.tall["supervised"].sum()))
    assert "loss_pg" not in supervised_outcome.metrics


def test_observe_moves_an_adaptive_beta_by_the_measured_divergence() -> None:
    objective = make(
        divergence={"kind": "k3", "beta": {"kind": "multiplicative", "initial": 0.1, "lower": 0.01, "upper": 0.1}}
    )
    state = objective.init()
    assert state.beta == 0.1
    raised = objective.observe(state, {"kl": 0.2})
    assert (raised.beta, raised.step) == (pytest.approx(0.15), 1)
    assert objective.observe(raised, {"kl": 0.05}).beta == raised.beta
    assert objective.observe(raised, {}).beta == raised.beta
    assert objective.plan(prepared(objective, world()), raised).beta == raised.beta


def test_running_statistics_travel_through_the_metrics() -> None:
    objective = make(advantage={"kind": "running_std"})
    batch = prepared(objective, world())
    assert batch.state.running.weight == pytest.approx(0.01)
    numbers = finish(objective.loss(world().scored(), objective.plan(batch)).statistics)
    running = objective.observe(objective.init(), numbers).running
    assert running.model_dump() == pytest.approx(batch.state.running.model_dump())


def test_state_survives_a_stage_unless_its_kind_changed() -> None:
    adaptive = {"kind": "k3", "beta": {"kind": "adaptive", "initial": 0.1, "target": 0.05}}
    previous = make(advantage={"kind": "running_std"}, divergence=adaptive)
    running = Running().follow(mean=1.0, std=2.0, centred_std=0.5, decay=0.9)
    state = previous.init().model_copy(update={"step": 5, "beta": 0.3, "running": running})
    assert previous.adopt(state, previous) == state.model_copy(update={"step": 0})
    next_stage = make(divergence={"kind": "k3", "beta": 0.1})
    adopted = next_stage.adopt(state, previous)
    assert (adopted.step, adopted.beta, adopted.running) == (0, None, Running())


def test_auxiliary_sums_need_a_divisor_and_whole_members() -> None:
    objective = Objective.preset("bnpo", **{"auxiliary.supervised": 1.0})
    mask = torch.ones(2, 2, dtype=torch.bool)
    old = torch.full((2, 2), -1.0)
    scored = Scored(old.clone(), auxiliary={"supervised": torch.ones(2)})
    bare = Rollouts(torch.tensor([0, 0]), mask, old, {"reward": [1.0, 0.0]})
    with pytest.raises(ValueError, match=r"auxiliary_count=\{'supervised'"):
        objective.loss(scored, objective.plan(objective.prepare(bare, objective.init())))
    counted = Rollouts(
        torch.tensor([0, 0]), mask, old, {"reward": [1.0, 0.0]}, auxiliary_count={"supervised": torch.ones(2)}
    )
    plan = objective.plan(objective.prepare(counted, objective.init()))
    half = Scored(old[:, :1].clone(), auxiliary=scored.auxiliary)
    with pytest.raises(ValueError, match=r"use objective\.cotangents"):
        objective.loss(half, plan.select(torch.arange(2), slice(0, 1)))


def test_a_penalty_of_zero_in_the_reward_needs_no_reference() -> None:
    objective = Objective.preset("rloo", **{"divergence.beta": 0.0})
    assert objective.requires_rollouts == frozenset()
    rollouts = Rollouts(
        torch.tensor([0, 0]), torch.ones(2, 1, dtype=torch.bool), torch.full((2, 1), -1.0), {"reward": [1.0, 0.0]}
    )
    assert objective.prepare(rollouts, objective.init()).advantage[:, 0].tolist() == [1.0, -1.0]


def test_what_is_no_score_is_named() -> None:
    inputs = world()
    objective = make()
    plan, given_scores = plan_of(objective, inputs), inputs.scored()
    with pytest.raises(ValueError, match=r"Scored.log_prob must be a float tensor, got torch.int64"):
        objective.loss(Scored(given_scores.log_prob.long(), given_scores.entropy), plan)


@pytest.mark.parametrize("of", ["reward", "advantage"])
def test_running_statistics_are_logged_by_the_sources_names(of: str) -> None:
    objective = make(advantage={"kind": "running_std", "of": of})
    batch = prepared(objective, world())
    numbers = finish(objective.loss(world().scored(), objective.plan(batch)).statistics)
    # The first batch: exactly its own mean and deviation.
    assert numbers["global_reward_mean"] == pytest.approx(finish(batch.statistics)["rewards_mean"])
    assert numbers["global_reward_std"] == pytest.approx(finish(batch.statistics)["rewards_std"])


@pytest.mark.parametrize("scored", ["loss", "cotangents"])
def test_a_live_log_prob_above_zero_is_named(scored: str) -> None:
    objective = Objective.preset("dapo")
    mask = torch.tensor([[True, True, False], [True, True, True]])
    rollouts = Rollouts(torch.tensor([0, 0]), mask, torch.full((2, 3), -1.0), {"r": torch.tensor([1.0, 0.0])})
    plan = objective.plan(objective.prepare(rollouts, objective.init()))
    run = getattr(objective, scored)
    wrong = torch.tensor([[-1.0, 0.0, 3.0], [-1.0, 0.25, -2.0]])
    with pytest.raises(ValueError, match=r"Scored.log_prob\[1, 1\] is 0.25, above zero.*density=True"):
        run(Scored(wrong), plan)
    with pytest.raises(ValueError, match=r"Scored.log_prob\[0, 1\] is 0.25, above zero"):
        run(Scored(wrong[1:]), plan.select(torch.tensor([1])))
    # Rounding and what is masked pass; so do densities.
    run(Scored(torch.tensor([[-1.0, 3e-4, 3.0], [-1.0, -0.25, -2.0]])), plan)
    densities = objective.plan(objective.prepare(replace(rollouts, density=True), objective.init()))
    run(Scored(wrong), densities)


@pytest.mark.parametrize("density", [False, True])
@pytest.mark.parametrize("value", [float("nan"), float("-inf"), float("inf")])
@pytest.mark.parametrize("scored", ["loss", "cotangents"])
def test_a_live_log_prob_that_is_not_finite_is_named(scored: str, value: float, density: bool) -> None:
    """A loss of NaN or -inf named nothing."""
    objective = Objective.preset("dapo")
    mask = torch.tensor([[True, True, False], [True, True, True]])
    rollouts = Rollouts(
        torch.tensor([0, 0]),
        mask,
        torch.full((2, 3), -1.0),
        {"r": [1.0, 0.0]},
        member=torch.tensor([40, 17]),
        density=density,
    )
    plan = objective.plan(objective.prepare(rollouts, objective.init()))
    broken = torch.full((2, 3), -1.0)
    broken[0, 2], broken[1, 1] = value, value
    message = (
        rf"Scored.log_prob\[1, 1\] is {value} where the mask is true \(1 such places; member id 17\).*Mask such a"
        r" decision out.*not_finite='counted'"
    )
    with pytest.raises(ValueError, match=message):
        getattr(objective, scored)(Scored(broken), plan)
    with pytest.raises(ValueError, match=r"Scored.log_prob\[0, 1\] is"):
        getattr(objective, scored)(Scored(broken[1:]), plan.select(torch.tensor([1])))
    broken[1, 1] = -1.0
    assert bool(getattr(objective, scored)(Scored(broken), plan) is not None)


@pytest.mark.parametrize("value", [float("nan"), float("-inf")])
@pytest.mark.parametrize(
    "name",
    [
        "grpo",
        "gspo",
        "cispo",
        "gmpo",
        "vespo",
        "topr",
        "aspo",
        "dppo_tv",
        "kl_cov",
        "clip_cov",
        "ema",
        "balanced",
        "amic",
        "rloo",
    ],
)
def test_where_it_is_counted_such_a_decision_weighs_nothing(name: str, value: float) -> None:
    """It counts as unmoved: value and gradient are those of a policy that gives it its old log-prob, less its own
    weight.
    """
    objective, generator = Objective.preset(name), torch.Generator().manual_seed(1)
    old = -2 * torch.rand(4, 3, dtype=torch.float64, generator=generator) - 0.5
    log_prob = old + 0.1 * torch.randn(4, 3, dtype=torch.float64, generator=generator)
    rollouts = Rollouts(
        torch.zeros(4, dtype=torch.long),
        torch.ones(4, 3, dtype=torch.bool),
        old,
        {"r": [1.0, 0, 1, 0]},
        behaviour_log_prob=old,
        reference_log_prob=old,
    )
    plan = objective.plan(objective.prepare(rollouts, objective.init()), not_finite="counted")
    places = torch.zeros(4, 3, dtype=torch.bool)
    places[0, 0], places[1, 1] = True, True
    cotangents = objective.cotangents(Scored(torch.where(places, value, log_prob)), plan)
    unmoved = replace(plan, weight=torch.where(places, 0.0, plan.weight))
    expected = objective.cotangents(Scored(torch.where(places, old, log_prob)), unmoved)
    assert finish(cotangents.loss.statistics)["log_prob/not_finite"] == 2.0
    assert "log_prob/not_finite" not in finish(expected.loss.statistics)
    torch.testing.assert_close(cotangents.loss.total, expected.loss.total, rtol=0, atol=1e-14)
    torch.testing.assert_close(
        cotangents.scored.log_prob, torch.where(places, 0.0, expected.scored.log_prob), rtol=0, atol=1e-14
    )
    assert {
        name: number for name, number in finish(cotangents.loss.statistics).items() if not math.isfinite(number)
    } == {}
    # By hand, without a ratio to bound: the sum over the others, each with its weight.
    if name == "rloo":
        assert float(cotangents.loss.total) == pytest.approx(
            -float((plan.weight * plan.advantage * torch.where(places, 0.0, log_prob)).sum()), abs=1e-14
        )


def test_the_entropy_of_such_a_decision_weighs_nothing_either() -> None:
    objective = Objective.preset("bnpo", entropy=0.5)
    mask = torch.ones(2, 2, dtype=torch.bool)
    rollouts = Rollouts(torch.tensor([0, 0]), mask, torch.full((2, 2), -1.0), {"r": [1.0, 1.0]})
    plan = objective.plan(objective.prepare(rollouts, objective.init()), not_finite="counted")
    log_prob, entropy = torch.full((2, 2), -1.0), torch.full((2, 2), 0.8)
    log_prob[0, 0], entropy[0, 0] = float("nan"), float("nan")
    assert float(objective.loss(Scored(log_prob, entropy), plan).total) == pytest.approx(-0.5 * 3 * 0.8 / 4)
