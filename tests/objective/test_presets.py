"""Every preset equals an independent transcription of its method, in value and gradient (law 7)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from importlib import import_module
from types import ModuleType
from typing import Any

import pytest
import torch
from tests.oracles import overlays
from tests.oracles.common import Given, Hand, hand_inputs
from torch import Tensor

from groupwise.objective import Objective
from groupwise.objective.preset import method_names, overlay_names
from groupwise.records import Rollouts, Scored

TOLERANCE = 1e-10

# Where the oracle's parameter of a hand-worked case lives in the preset.
KEYS = {
    ("dr_grpo", "length"): "aggregation.length",
    ("cispo", "ratio_max"): "trust.maximum",
    ("dual_clip", "bound"): "trust.bound",
    ("rloo", "beta"): "divergence.beta",
    ("temporal_decay", "gamma"): "credit.temporal_decay.gamma",
    ("conservative", "gamma"): "credit.temporal_decay.gamma",
    ("all_compatible", "gamma"): "credit.temporal_decay.gamma",
}


def oracle(name: str) -> ModuleType:
    return import_module(f"tests.oracles.{name}")


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
    mask = draw(members, width) < 0.7
    mask[:, 0] |= ~mask.any(1)
    mask[5] = False
    order = torch.randperm(members, generator=generator)
    group = torch.tensor([0, 0, 0, 1, 1, 2, 2, 2, 2, 3, 3])[order].tolist()
    level = [2.0 * draw(1).item() - 1.0 for _ in range(4)]
    rewards = [level[g] if g == 3 else float((4 * draw(1)).round()) / 2 - 1 + 0.01 * i for i, g in enumerate(group)]
    reference, behaviour = log_prob + 0.5 * (draw(members, width) - 0.5), old + 4.0 * (draw(members, width) - 0.5)
    given = Given(old, mask, group, rewards, reference.clamp(max=-1e-4), behaviour.clamp(max=-1e-4), 3 * draw(members, width), draw(members, width))
    return log_prob, given


def ours(objective: Objective, log_prob: Tensor, given: Given) -> tuple[Tensor, list[Tensor]]:
    """Our loss with its gradients by log_prob and entropy."""
    rollouts = Rollouts(
        group=torch.tensor(given.group),
        mask=given.mask,
        old_log_prob=given.old_log_prob,
        rewards={"reward": torch.tensor(given.rewards, dtype=torch.float64)},
        reference_log_prob=given.reference_log_prob,
        behaviour_log_prob=given.behaviour_log_prob,
        density=True,  # the hand-worked reference exceeds probability one on a decision, which the formulas do not mind
    )
    batch = objective.prepare(rollouts, objective.init())
    return differentiate(
        lambda live, entropy: objective.loss(Scored(live, entropy=entropy, score_norm=given.score_norm), objective.plan(batch)).total, log_prob, given
    )


def differentiate(loss: Any, log_prob: Tensor, given: Given) -> tuple[Tensor, list[Tensor]]:
    """The value of `loss(log_prob, entropy)` and its gradients."""
    assert given.entropy is not None
    leaves = [log_prob.clone().requires_grad_(), given.entropy.clone().requires_grad_()]
    value = loss(*leaves)
    gradients = torch.autograd.grad(value, leaves, allow_unused=True)
    return value.detach(), [torch.zeros_like(leaf) if g is None else g for leaf, g in zip(leaves, gradients, strict=True)]


def agree(actual: Tensor, expected: Tensor, within: float = TOLERANCE) -> None:
    """`|actual - expected| <= within max(1, |expected|)` in every entry."""
    excess = (actual - expected).abs() - within * expected.abs().clamp(min=1)
    assert (excess <= 0).all(), f"off by {float((actual - expected).abs().max())}"


def compare(objective: Objective, module: ModuleType, log_prob: Tensor, given: Given, parameters: Mapping[str, Any]) -> None:
    value, gradients = ours(objective, log_prob, given)
    expected, by_hand = differentiate(lambda live, entropy: module.loss(live, replace(given, entropy=entropy), **parameters), log_prob, given)
    agree(value, expected)
    for actual, gradient in zip(gradients, by_hand, strict=True):
        agree(actual, gradient)


@pytest.mark.parametrize("name", method_names())
def test_every_preset_has_an_oracle(name: str) -> None:
    assert callable(oracle(name).loss)
    assert isinstance(oracle(name).HAND, Hand)


@pytest.mark.parametrize("name", method_names())
def test_oracle_gives_the_hand_worked_numbers(name: str) -> None:
    log_prob, given = hand_inputs()
    hand: Hand = oracle(name).HAND
    value, gradients = differentiate(lambda live, entropy: oracle(name).loss(live, replace(given, entropy=entropy), **hand.parameters), log_prob, given)
    _is_hand(value, gradients, hand)


@pytest.mark.parametrize("name", method_names())
def test_preset_gives_the_hand_worked_numbers(name: str) -> None:
    log_prob, given = hand_inputs()
    hand: Hand = oracle(name).HAND
    overrides = {KEYS[name, parameter]: value for parameter, value in hand.parameters.items()}
    value, gradients = ours(Objective.preset(name, **overrides), log_prob, given)
    _is_hand(value, gradients, hand)


def _is_hand(value: Tensor, gradients: list[Tensor], hand: Hand) -> None:
    assert float(value) == pytest.approx(hand.value, abs=1e-9)
    agree(gradients[0], torch.tensor(hand.gradient, dtype=torch.float64), within=1e-9)
    if hand.entropy_gradient is not None:
        agree(gradients[1], torch.tensor(hand.entropy_gradient, dtype=torch.float64), within=1e-9)
    else:
        assert not gradients[1].any()


@pytest.mark.parametrize("spread", [0.5, 3.0, 20.0])
@pytest.mark.parametrize("seed", [0, 1])
@pytest.mark.parametrize("name", method_names())
def test_preset_equals_its_oracle(name: str, seed: int, spread: float) -> None:
    log_prob, given = given_batch(seed, spread)
    compare(Objective.preset(name), oracle(name), log_prob, replace(given, score_norm=None), {})


@pytest.mark.parametrize("name", ["gradient_adaptive", "aggressive", "balanced", "all_compatible"])
def test_the_exact_signal_equals_its_oracle(name: str) -> None:
    log_prob, given = given_batch(3, 2.0)
    compare(Objective.preset(name, **{"credit.gradient_adaptive.signal": "score_norm"}), oracle(name), log_prob, given, {})


@pytest.mark.parametrize("spread", [0.5, 20.0])
@pytest.mark.parametrize("overlay", overlay_names())
def test_an_overlay_multiplies_the_surrogate(overlay: str, spread: float) -> None:
    log_prob, given = given_batch(4, spread)
    weights = getattr(overlays, overlay)(given)
    bound = {"tis": 2.0, "mis": 0.0, "icepop": 0.0}[overlay]
    assert 0 < sum(weight == bound for weight in weights.values()) < len(weights)
    compare(Objective.preset(f"dapo+{overlay}"), oracle("dapo"), log_prob, replace(given, score_norm=None), {"correction": weights})


def test_batches_hold_what_they_promise() -> None:
    log_prob, given = given_batch(0, 20.0)
    gap = torch.where(given.mask, log_prob - given.old_log_prob, 0.0)
    assert float(gap.max()) > 10
    assert float(gap.min()) < -10
    assert not given.mask[5].any()
    assert any((~row[: int(row.nonzero().max())]).any() for row in given.mask if row.any())
    advantages = (
        Objective.preset("grpo")
        .prepare(
            Rollouts(torch.tensor(given.group), given.mask, given.old_log_prob, {"reward": given.rewards}, reference_log_prob=given.reference_log_prob),
            Objective.preset("grpo").init(),
        )
        .advantage
    )
    assert {-1.0, 0.0, 1.0} == set(advantages.sign().flatten().tolist())
