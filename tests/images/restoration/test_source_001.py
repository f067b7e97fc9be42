"""Source 001's whole loss, written down in plain torch, against what real optimiser steps of its experiment do.

    loss = lambda_pg loss_pg + lambda_sup L1(mu, target) + lambda_cons L1(mu, mu_ref) + beta KL(mu || mu_ref)

Nothing here calls the objective, the policy or the losses of the product: images, actions and rewards' inputs are all
that is taken from a batch.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import cache
from typing import Any

import pytest
import torch
from tests.images.restoration.small import domain
from tests.marks import slow_but
from torch import Tensor
from torch.nn import functional

from groupwise.experiment import load_experiment
from groupwise.experiment.runner import job_of
from groupwise.objective.batch import Running
from groupwise.reference import ReferencePolicy
from groupwise.streams import Streams
from groupwise.training.distributed import World
from groupwise.training.job import Recipe
from groupwise.training.run.stages import stage_reference
from groupwise.training.step.passes import step_demonstrations
from groupwise.training.step.rollouts import Collected
from groupwise.training.step.state import Progress, TrainState
from groupwise.training.step.state import Step as TrainStep
from groupwise.training.step.step import collect, update_policy
from groupwise_images.restoration.domain import RestorationDomain

SIGMA, BLOCK, RATE = 0.2, 4, 0.02
PAST = {"mean": 0.4, "std": 0.2, "centred_std": 0.005, "decay": 0.99}
"""What earlier batches were like, as one: with the tight spread that it had, advantages are large enough for their
clip.
"""
REWARDS = {
    "scalar": {
        "bright": {"kind": "callable", "path": "tests.images.restoration.small:bright", "weight": 0.4},
        "psnr": {"kind": "psnr", "scale": 0.025},
    },
    "map": {
        "bright": {"kind": "callable", "path": "tests.images.restoration.small:bright_map", "weight": 0.4},
        "psnr": {"kind": "psnr", "scale": 0.025, "weight": 0.6},
    },
}
Weights = dict[str, Tensor]


@dataclass
class Step:
    """One optimiser step of the product: the weights it began at, the gradient it was given, what it measured."""

    weights: Weights
    gradient: Tensor
    metrics: dict[str, float]


@dataclass
class Steps:
    """Both optimiser steps on one batch."""

    given: RestorationDomain
    recipe: Recipe
    collected: Collected
    shown: list[Any]
    steps: list[Step]
    last: Weights


def stepped(rewards: str, block: int, size: int | None, **train: Any) -> Steps:
    """The full stage of `source_001_progressive` on tiny digits: one batch, two optimiser steps."""
    changes = {
        "policy": {"sigma": SIGMA, "block": block},
        "rewards": REWARDS[rewards],
        "consistency": "l1",
        "supervised": "l1",
    }
    given = domain(changes)
    full = full_stage()
    recipe = replace(
        full,
        train=full.train.model_copy(
            update={"micro_batch_members": size, "prompts_per_step": 4, "demonstrations_per_step": 5, **train}
        ),
    )
    rate = recipe.optimiser.learning_rate.model_copy(update={"value": RATE})
    recipe = replace(recipe, optimiser=recipe.optimiser.model_copy(update={"learning_rate": rate}))
    state = TrainState(
        Progress(stage_step=20),
        recipe.objective.init().model_copy(update={"running": Running().follow(**PAST)}),
        given.learner,
    )
    state.reference = ReferencePolicy(stage_reference(recipe), state.learner)
    # The reference is where the stage began; the batch comes later.
    generator = torch.Generator().manual_seed(5)
    with torch.no_grad():
        for parameter in given.module.parameters():
            parameter += 0.02 * torch.randn(parameter.shape, generator=generator, dtype=torch.float64)
    now = TrainStep(given, recipe, state, Streams(11), World())
    collected = collect(now)
    shown = [step_demonstrations(now, number) for number in range(2)]
    seen: list[tuple[Weights, Tensor]] = []
    given.learner.optimiser.register_step_pre_hook(
        lambda *_: seen.append((copied(given), torch.cat([p.grad.flatten() for p in given.module.parameters()])))
    )
    updates = update_policy(now, collected)
    assert len(seen) == len(updates.metrics) == updates.taken == 2
    return Steps(
        given,
        recipe,
        collected,
        shown,
        [Step(*each, metrics) for each, metrics in zip(seen, updates.metrics, strict=True)],
        copied(given),
    )


@cache
def full_stage() -> Recipe:
    return job_of(load_experiment("source_001_progressive")).recipes[-1]


def copied(given: RestorationDomain) -> Weights:
    return {name: value.detach().clone() for name, value in given.module.named_parameters()}


# The source's loss by hand


def network(weights: Weights, images: Tensor) -> Tensor:
    value = images
    for layer in ("features.0", "features.2"):
        value = functional.gelu(
            functional.conv2d(value, weights[f"{layer}.weight"], weights[f"{layer}.bias"], padding=1)
        )
    return images + functional.conv2d(value, weights["last.weight"], weights["last.bias"], padding=1)


def blocks(value: Tensor, side: int) -> Tensor:
    """`[B, 1, 8, 8] -> [B, T]`, sums."""
    return torch.stack([part.sum((1, 2, 3)) for rows in value.split(side, 2) for part in rows.split(side, 3)], dim=1)


def log_probs(mean: Tensor, action: Tensor, side: int) -> Tensor:
    return blocks(-((action - mean) ** 2) / (2 * SIGMA**2) - math.log(SIGMA * math.sqrt(2 * math.pi)), side)


def rewards_by_hand(steps: Steps, kind: str, side: int) -> Tensor:
    """`[B, T]` for a map, `[B, 1]` otherwise."""
    payload = steps.collected.samples.payload
    shown = (payload["action"].clamp(0, 1) * 255 + 0.5).floor() / 255
    # The target, as the rewards are given it, is an 8-bit image.
    clean = (torch.stack([torch.from_numpy(picture.clean) for picture in of(steps)]).double() * 255 + 0.5).floor() / 255
    decibels = (-10 * torch.log10(((shown - clean) ** 2).mean((1, 2, 3)))[:, None]) * 0.025
    if kind == "map":
        return 0.4 * blocks(shown, side) / side**2 + 0.6 * decibels
    return 0.4 * shown[:, :, :4].mean((1, 2, 3))[:, None] + decibels


def of(steps: Steps) -> list[Any]:
    return [steps.given._of(steps.collected.samples.prompts[place]) for place in steps.collected.samples.group.tolist()]


def advantages_by_hand(reward: Tensor, group_size: int) -> tuple[Tensor, float]:
    """Inside each group; divided by the bias-corrected running deviation of just that; clipped at 2."""
    groups = reward.view(-1, group_size, reward.shape[1])
    centred = groups - groups.mean(1, keepdim=True)
    decay = PAST["decay"]
    # Two batches so far, of weights decay (1 - decay) and (1 - decay).
    scale = (decay * PAST["centred_std"] + float(centred.flatten().std())) / (decay + 1)
    unclipped = (centred / scale).view(reward.shape)
    return unclipped.clamp(-2, 2), float((unclipped.abs() > 2).double().mean())


@dataclass
class Terms:
    """The source's four terms, each with its weight, and how much of the surrogate is clipped."""

    pg: Tensor
    sup: Tensor
    cons: Tensor
    kl: Tensor
    clipped: float

    @property
    def total(self) -> Tensor:
        return self.pg + self.sup + self.cons + self.kl


def terms(steps: Steps, number: int, advantage: Tensor, side: int, reference: Weights) -> tuple[Terms, Tensor]:
    """All terms at the weights of the optimiser step `number`, and the gradient of their sum by autograd."""
    weights = {name: value.clone().requires_grad_() for name, value in steps.steps[number].weights.items()}
    payload = steps.collected.samples.payload
    degraded, action = payload["degraded"], payload["action"]
    mean, start = network(weights, degraded), network(reference, degraded)
    old = log_probs(network(steps.steps[0].weights, degraded), action, side)
    ratio = torch.exp(log_probs(mean, action, side) - old)
    pg = torch.maximum(-advantage * ratio, -advantage * ratio.clamp(0.9, 1.1)).mean()
    clipped = float((((ratio > 1.1) & (advantage > 0)) | ((ratio < 0.9) & (advantage < 0))).double().mean())
    kl = 0.02 * blocks((mean - start) ** 2 / (2 * SIGMA**2), side).mean()
    cons = 0.1 * (mean - start).abs().mean()
    shown = steps.shown[number].payload
    sup = 0.25 * (network(weights, shown["degraded"]) - shown["target"]).abs().mean()
    found = Terms(pg, sup, cons, kl, clipped)
    gradient = torch.autograd.grad(found.total, list(weights.values()))
    return found, torch.cat([each.flatten() for each in gradient])


CUTS = [("scalar", 1, None), ("map", BLOCK, 5), ("scalar", BLOCK, 1), ("map", BLOCK, None), ("map", 1, 1)]


@pytest.mark.parametrize(("rewards", "block", "size"), slow_but(CUTS[:2], CUTS))
def test_two_optimiser_steps_have_the_loss_and_the_gradient_of_the_source(
    rewards: str, block: int, size: int | None
) -> None:
    steps = stepped(rewards, block, size, max_grad_norm=None)
    reference = copied(domain({"policy": {"sigma": SIGMA, "block": block}}))
    assert len(steps.collected.samples) == 12
    advantage, bound = advantages_by_hand(rewards_by_hand(steps, rewards, block), 3)
    batch = steps.collected.batch
    assert batch is not None
    assert 0 < bound < 0.5
    # Rewards are measured on 8-bit images in single precision; what follows is exact, from the advantages as they were
    # found.
    torch.testing.assert_close(batch.advantage, advantage, rtol=0, atol=1e-6)
    advantage = batch.advantage
    clipped = []
    for number, step in enumerate(steps.steps):
        found, gradient = terms(steps, number, advantage, block, reference)
        clipped.append(found.clipped)
        measured = {f"loss_{name}": getattr(found, name).item() for name in ("pg", "sup", "cons", "kl")}
        assert {name: step.metrics[name] for name in measured} == pytest.approx(measured, rel=1e-9, abs=1e-12)
        assert step.metrics["loss"] == pytest.approx(found.total.item(), rel=1e-9)
        assert step.metrics["grad_norm"] == pytest.approx(float(gradient.norm()), rel=1e-9)
        torch.testing.assert_close(step.gradient, gradient, rtol=1e-9, atol=1e-11)
        # Every term counts: none is so small that it could be wrong unnoticed.
        assert min(abs(each) for name, each in measured.items() if name != "loss_pg") > 1e-6
    # On the batch's own policy no ratio has moved; after one step the clip at 0.1 acts on some and not on all.
    assert clipped[0] == 0
    assert 0.02 < clipped[1] < 0.9


def test_the_gradient_is_clipped_and_the_step_is_adams() -> None:
    """`--grpo_max_grad_norm 0.5`: what the optimiser is given is no longer than that, and the weights move by AdamW's
    rule at the rate that was set.
    """
    plain, held = stepped("map", BLOCK, 5, max_grad_norm=None), stepped("map", BLOCK, 5)
    assert held.recipe.train.max_grad_norm == 0.5
    assert plain.steps[0].gradient.norm() > 1.0
    assert held.steps[0].metrics["grad_norm"] == pytest.approx(float(plain.steps[0].gradient.norm()))
    for step in held.steps:
        assert step.gradient.norm() <= 0.5
        assert step.gradient.norm() == pytest.approx(0.5, rel=1e-5)
    torch.testing.assert_close(
        held.steps[0].gradient / 0.5, plain.steps[0].gradient / plain.steps[0].gradient.norm(), rtol=0, atol=1e-5
    )
    own = [value.clone().requires_grad_() for value in held.steps[0].weights.values()]
    decayed, rest = [each for each in own if each.dim() > 1], [each for each in own if each.dim() == 1]
    adam = torch.optim.AdamW(
        [{"params": decayed, "weight_decay": 1e-4}, {"params": rest, "weight_decay": 0.0}],
        lr=RATE,
        betas=(0.9, 0.999),
        eps=1e-8,
    )
    for step, after in zip(held.steps, (held.steps[1].weights, held.last), strict=True):
        for parameter, part in zip(own, step.gradient.split([each.numel() for each in own]), strict=True):
            parameter.grad = part.view_as(parameter).clone()
        adam.step()
        for parameter, wanted in zip(own, after.values(), strict=True):
            torch.testing.assert_close(parameter.detach(), wanted, rtol=0, atol=1e-12)
