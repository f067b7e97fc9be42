"""Every preset equals an independent transcription of its method, in value and gradient (law 7)."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import replace
from importlib import import_module
from typing import Any

import pytest
import torch
from tests.oracles import overlays
from tests.oracles.common import ORACLES, Given, Hand, Oracle, hand_inputs
from torch import Tensor

from groupwise.objective import Objective
from groupwise.objective.batch import Running, grouped_rewards
from groupwise.objective.decisions import keyed_uniform
from groupwise.objective.preset import method_names, overlay_names, read_method
from groupwise.records import Rollouts, Scored
from groupwise.statistics import sum_over_one_process

for family in ("flow", "group", "member", "region", "reinforce", "source_000"):
    import_module(f"tests.oracles.{family}")

TOLERANCE = 1e-10
LEAVES = ("entropy", "exact_divergence", "positive_error", "negative_error")
"""The fields beside log-probs that a loss is differentiated by."""

# Where the oracle's parameter of a hand-worked case lives in the preset.
KEYS = {
    ("dr_grpo", "length"): "aggregation.length",
    ("cispo", "ratio_max"): "trust.maximum",
    ("dual_clip", "bound"): "trust.bound",
    ("rloo", "beta"): "divergence.beta",
    ("reinforce_pp", "beta"): "divergence.beta",
    ("topr", "baseline"): "advantage.value",
    ("aspo", "bound"): "trust.bound",
    ("clip_cov", "lower"): "trust.lower",
    ("clip_cov", "upper"): "trust.upper",
    ("temporal_decay", "gamma"): "credit.temporal_decay.gamma",
    ("conservative", "gamma"): "credit.temporal_decay.gamma",
    ("all_compatible", "gamma"): "credit.temporal_decay.gamma",
}


def given_batch(seed: int, spread: float) -> tuple[Tensor, Given]:
    """Groups of 3, 2, 4 and 2 members (one flat), ragged masks with holes and one empty member, rewards of both signs.

    Args:
        seed: of everything.
        spread: how far log-probs lie apart, in nats; 20 gives log-ratios up to 20.
    """
    generator = torch.Generator().manual_seed(seed)

    def draw(*shape: int) -> Tensor:
        return torch.rand(*shape, dtype=torch.float64, generator=generator)

    members, width = 11, 6
    old = -spread * draw(members, width) - 1e-3
    log_prob = -spread * draw(members, width) - 1e-3
    log_prob[::3] = old[::3] + 0.02 * (draw(4, width) - 0.5) * min(spread, 1.0)
    log_prob = log_prob.clamp(max=-5e-4)
    mask = draw(members, width) < 0.7
    mask[:, 0] |= ~mask.any(1)
    mask[5] = False
    order = torch.randperm(members, generator=generator)
    group = torch.tensor([0, 0, 0, 1, 1, 2, 2, 2, 2, 3, 3])[order].tolist()
    level = [2.0 * draw(1).item() - 1.0 for _ in range(4)]
    rewards = [level[g] if g == 3 else float((4 * draw(1)).round()) / 2 - 1 + 0.01 * i for i, g in enumerate(group)]
    reference, behaviour = log_prob + 0.5 * (draw(members, width) - 0.5), old + 4.0 * (draw(members, width) - 0.5)
    inputs = Given(
        old,
        mask,
        group,
        rewards,
        reference.clamp(max=-1e-4),
        behaviour.clamp(max=-1e-4),
        entropy=3 * draw(members, width),
        score_norm=draw(members, width),
        second=[0.5 if g == 3 else float((4 * draw(1)).round()) + 0.01 * i for i, g in enumerate(group)],
        lot=keyed_uniform(torch.arange(members)[:, None], torch.arange(width), 0),
        exact_divergence=draw(members, width),
        step_size=0.1 + draw(members, width),
        noise=0.1 + draw(members, width),
        drift=draw(members, width),
        old_divergence=2e-5 * draw(members, width),
        positive_error=draw(members, width),
        negative_error=draw(members, width),
    )
    return log_prob, inputs


def suited(name: str, inputs: Given) -> Given:
    """The batch as the method takes it: MaxRL's rewards are not negative."""
    return replace(inputs, rewards=[reward + 1.5 for reward in inputs.rewards]) if name == "max_rl" else inputs


def ours(objective: Objective, log_prob: Tensor, inputs: Given) -> tuple[Tensor, list[Tensor]]:
    """Our loss with its gradients by log_prob and `LEAVES`. A reference is given where it is read."""
    reference = inputs.reference_log_prob if "reference_log_prob" in objective.requires_rollouts else None
    rewards = {"reward": inputs.rewards} | (
        {"second": inputs.second} if objective.advantage.kind == "per_reward" and inputs.second is not None else {}
    )
    rollouts = Rollouts(
        group=torch.tensor(inputs.group, device=log_prob.device),
        mask=inputs.mask,
        old_log_prob=inputs.old_log_prob,
        rewards=rewards,
        reward_weights={name: 0.5 for name in rewards if name == "second"},
        reference_log_prob=reference,
        behaviour_log_prob=inputs.behaviour_log_prob,
        step_size=inputs.step_size,
        density=reference
        is not None,  # the hand-worked reference exceeds probability one on a decision, which the formulas do not mind
    )
    batch = objective.prepare(rollouts, objective.init())

    def loss(live: Tensor, inputs: Given) -> Tensor:
        assert inputs.noise is not None
        assert inputs.drift is not None
        scored = Scored(
            live,
            entropy=inputs.entropy,
            exact_divergence=inputs.exact_divergence,
            score_norm=inputs.score_norm,
            mean_shift=inputs.noise
            * (live - inputs.old_log_prob + inputs.drift),  # mean(eps (mu - mu_old)) of a Gaussian transition
            old_divergence=inputs.old_divergence,
            positive_error=inputs.positive_error,
            negative_error=inputs.negative_error,
        )
        return objective.loss(scored, objective.plan(batch)).total

    return differentiate(loss, log_prob, inputs)


def differentiate(
    loss: Callable[[Tensor, Given], Tensor], log_prob: Tensor, inputs: Given
) -> tuple[Tensor, list[Tensor]]:
    """The value of `loss(log_prob, given)` and its gradients by log_prob and `LEAVES`."""
    leaves = [leaf.clone().requires_grad_() for leaf in (log_prob, *(getattr(inputs, name) for name in LEAVES))]
    value = loss(leaves[0], replace(inputs, **dict(zip(LEAVES, leaves[1:], strict=True))))
    gradients = torch.autograd.grad(value, leaves, allow_unused=True)
    return value.detach(), [
        torch.zeros_like(leaf) if g is None else g for leaf, g in zip(leaves, gradients, strict=True)
    ]


def agree(actual: Tensor, expected: Tensor, within: float = TOLERANCE) -> None:
    """`|actual - expected| <= within max(1, |expected|)` in every entry."""
    excess = (actual - expected).abs() - within * expected.abs().clamp(min=1)
    assert (excess <= 0).all(), f"off by {float((actual - expected).abs().max())}"


def compare(
    objective: Objective, oracle: Oracle, log_prob: Tensor, inputs: Given, parameters: Mapping[str, Any]
) -> None:
    value, gradients = ours(objective, log_prob, inputs)
    expected, by_hand = differentiate(lambda live, inputs: oracle.loss(live, inputs, **parameters), log_prob, inputs)
    agree(value, expected)
    for actual, gradient in zip(gradients, by_hand, strict=True):
        agree(actual, gradient)


@pytest.mark.parametrize("name", method_names())
def test_preset_and_oracle_give_the_hand_worked_numbers(name: str) -> None:
    log_prob, inputs = hand_inputs()
    oracle, hand = ORACLES[name], ORACLES[name].hand
    _is_hand(*differentiate(lambda live, inputs: oracle.loss(live, inputs, **hand.parameters), log_prob, inputs), hand)
    overrides = {KEYS[name, parameter]: value for parameter, value in hand.parameters.items()}
    value, gradients = ours(Objective.preset(name, **overrides), log_prob, inputs)
    _is_hand(value, gradients, hand)


def _is_hand(value: Tensor, gradients: list[Tensor], hand: Hand) -> None:
    assert float(value) == pytest.approx(hand.value, abs=1e-9)
    agree(gradients[0], torch.tensor(hand.gradient, dtype=torch.float64), within=1e-9)
    by_hand = (hand.entropy_gradient, hand.exact_gradient, hand.positive_gradient, hand.negative_gradient)
    for actual, expected in zip(gradients[1:], by_hand, strict=True):
        if expected is not None:
            agree(actual, torch.tensor(expected, dtype=torch.float64), within=1e-9)
        else:
            assert not actual.any()


@pytest.mark.parametrize(("seed", "spread"), [(0, 0.5), (1, 3.0), (0, 20.0)])
@pytest.mark.parametrize("name", method_names())
def test_preset_equals_its_oracle(name: str, seed: int, spread: float) -> None:
    log_prob, inputs = given_batch(seed, spread)
    compare(Objective.preset(name), ORACLES[name], log_prob, suited(name, replace(inputs, score_norm=None)), {})


@pytest.mark.parametrize("name", ["gradient_adaptive", "aggressive", "balanced", "all_compatible"])
def test_the_exact_signal_equals_its_oracle(name: str) -> None:
    log_prob, inputs = given_batch(3, 2.0)
    compare(
        Objective.preset(name, **{"credit.gradient_adaptive.signal": "score_norm"}), ORACLES[name], log_prob, inputs, {}
    )


VARIANTS = [
    (
        "clip_cov",
        {"trust.share": 0.2, "trust.lower": -0.5, "trust.high": 0.3},
        {"share": 0.2, "lower": -0.5, "clip_high": 0.3},
    ),
    ("kl_cov", {"trust.share": 0.3, "trust.coefficient": 0.7}, {"share": 0.3, "coefficient": 0.7}),
    ("sapo", {"trust.tau_pos": 0.7, "trust.tau_neg": 1.3}, {"tau_pos": 0.7, "tau_neg": 1.3}),
    (
        "vespo",
        {"trust.k_pos": 1.3, "trust.lambda_neg": 0.7, "trust.limit": 0.9},
        {"k_pos": 1.3, "lambda_neg": 0.7, "limit": 0.9},
    ),
    ("dppo_tv", {"trust.threshold": 0.01, "trust.maximum": 1.3}, {"threshold": 0.01, "maximum": 1.3}),
    ("dppo_kl", {"trust.threshold": 0.001, "trust.maximum": 1.3}, {"threshold": 0.001, "maximum": 1.3}),
    ("aspo", {"trust.low": 0.1, "trust.high": 0.4, "trust.bound": 1.5}, {"low": 0.1, "high": 0.4, "bound": 1.5}),
    ("gmpo", {"trust.low": 0.1, "trust.high": 0.3}, {"low": 0.1, "high": 0.3}),
    ("topr", {"advantage.value": 0.25}, {"baseline": 0.25}),
    ("grpo_guard", {"trust.low": 0.2, "trust.high": 0.2}, {"clip": 0.2}),
    ("awm", {"trust.low": 0.2, "trust.high": 0.2, "divergence.beta": 0.5}, {"clip": 0.2, "beta": 0.5}),
    ("diffusion_nft", {"matching.clip": 0.4, "divergence.beta": 0.5}, {"bound": 0.4, "beta": 0.5}),
    ("flow_dppo", {"trust.threshold": 1e-7}, {"threshold": 1e-7}),
    ("flow_grpo", {"trust.low": 0.2, "trust.high": 0.2, "divergence.beta": 0.5}, {"clip": 0.2, "beta": 0.5}),
]


@pytest.mark.parametrize(("spread", "sampler"), [(0.5, True), (3.0, False)], ids=["sampler", "no sampler"])
@pytest.mark.parametrize(("name", "keys", "parameters"), VARIANTS, ids=[name for name, _, _ in VARIANTS])
def test_parameters_do_what_the_oracle_says(
    name: str, keys: dict[str, Any], parameters: dict[str, Any], spread: float, sampler: bool
) -> None:
    log_prob, inputs = given_batch(5, spread)
    inputs = inputs if sampler else replace(inputs, behaviour_log_prob=None)
    objective = Objective.preset(name, **keys)
    compare(objective, ORACLES[name], log_prob, inputs, parameters)
    plain, _ = ours(Objective.preset(name), log_prob, inputs)
    edited, _ = ours(objective, log_prob, inputs)
    assert plain != edited


@pytest.mark.parametrize("spread", [0.5, 20.0])
@pytest.mark.parametrize("overlay", overlay_names())
def test_an_overlay_multiplies_the_surrogate(overlay: str, spread: float) -> None:
    log_prob, inputs = given_batch(4, spread)
    # The interval of geometric rejection is that of one engine; here the sampler is further away.
    edits, bounds = (
        ({"correction.minimum": 0.9, "correction.maximum": 1.1}, {"lower": 0.9, "upper": 1.1})
        if overlay == "geo_rs"
        else ({}, {})
    )
    weights = getattr(overlays, overlay)(inputs, **bounds)
    bound = 2.0 if overlay in ("tis", "seq_tis") else 0.0
    assert 0 < sum(weight == bound for weight in weights.values()) < len(weights)
    compare(
        Objective.preset(f"dapo+{overlay}", **edits),
        ORACLES["dapo"],
        log_prob,
        replace(inputs, score_norm=None),
        {"correction": weights},
    )


@pytest.mark.parametrize("name", method_names())
def test_a_preset_says_where_it_differs(name: str) -> None:
    """From what it does: flat groups, the floor under a standard deviation, rounds of sampling, the line of k3. Eleven
    presets said nothing of it.
    """
    method, objective = read_method(name), Objective.preset(name)
    deviations = " ".join(method.deviations)
    assert deviations
    floored = getattr(objective.advantage, "min_std", None)
    if floored is not None:
        assert f"{floored:g}".replace("e-0", "e-") in deviations
    two = grouped_rewards(flat_and_other(), "drop", sum_over_one_process)
    if not objective.advantage(two, Running())[0][:3].any() and objective.advantage.kind not in (
        "constant",
        "accepted",
    ):
        assert re.search("flat (group|batch)|flat in every reward|group whose mean is 0", deviations), deviations
    if getattr(objective.admission, "max_rounds", None) is not None:
        assert "admission.max_rounds" in deviations
    if objective.divergence.kind == "k3":
        assert "80 nats" in deviations


def flat_and_other() -> Rollouts:
    """A group of three rewards of .1, whose mean rounds, and another that differs."""
    old = torch.full((6, 1), -1.0, dtype=torch.float64)
    return Rollouts(
        torch.arange(6) // 3, torch.ones(6, 1, dtype=torch.bool), old, {"r": [0.1, 0.1, 0.1, 0.0, 1.0, 0.5]}
    )


def test_batches_hold_what_they_promise() -> None:
    log_prob, inputs = given_batch(0, 20.0)
    gap = torch.where(inputs.mask, log_prob - inputs.old_log_prob, 0.0)
    assert float(gap.max()) > 10
    assert float(gap.min()) < -10
    assert not inputs.mask[5].any()
    assert any((~row[: int(row.nonzero().max())]).any() for row in inputs.mask if row.any())
    advantages = (
        Objective.preset("grpo")
        .prepare(
            Rollouts(
                torch.tensor(inputs.group),
                inputs.mask,
                inputs.old_log_prob,
                {"reward": inputs.rewards},
                reference_log_prob=inputs.reference_log_prob,
            ),
            Objective.preset("grpo").init(),
        )
        .advantage
    )
    assert {-1.0, 0.0, 1.0} == set(advantages.sign().flatten().tolist())
