"""Stepwise credit: each transition is rewarded by what it adds to the reward of the predicted clean image."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from tests.images.diffusion.small import bright as bright
from tests.images.diffusion.small import domain, sampled

from groupwise.config import ConfigError
from groupwise.reward import RewardError, RewardTable
from groupwise_images.diffusion.domain import DiffusionDomain
from groupwise_images.diffusion.stepwise import gains, predicted_latents
from groupwise_images.image_evaluation import as_pictures

LOG_PROB = frozenset({"log_prob"})
SAMPLERS: list[dict[str, Any]] = [
    {"kind": "cps", "eta": 0.6},
    {"kind": "flow_sde", "noise": 0.7},
    {"kind": "dance_sde", "noise": 0.3},
    {"kind": "ddim"},
]


def small(**changes: Any) -> DiffusionDomain:
    return domain({"stepwise": True, **changes})


@pytest.mark.parametrize("sampler", SAMPLERS, ids=lambda sampler: sampler["kind"])
def test_the_prediction_is_read_back_from_the_mean(sampler: dict[str, Any]) -> None:
    given = small(sampler=sampler)
    samples = sampled(given, requires=LOG_PROB)
    found = predicted_latents(samples.payload, given._schedule, given.config.sampler)
    condition = given.denoiser.encode([prompt.columns for prompt in samples.prompts]).select(samples.group)
    for decision, level in enumerate((1.0, 0.75, 0.5)):
        latents = samples.payload["visited"][:, decision]
        velocity = given.denoiser.predict(latents, torch.full((6,), 1000 * level).double(), condition, 1.0)
        assert torch.allclose(found[:, decision], (latents - level * velocity).detach(), rtol=0, atol=1e-9)


def test_gains_are_differences_of_rewards_of_predicted_images() -> None:
    given = small()
    samples = sampled(given, requires=LOG_PROB)
    table = given.reward(samples)
    predicted = predicted_latents(samples.payload, given._schedule, given.config.sampler)
    for member in range(6):
        images = [*as_pictures(given.denoiser.decode(predicted[member])), samples.payload["images"][member]]
        rewards = bright(images)
        assert table.maps["bright"][member].tolist() == pytest.approx(np.diff(rewards).tolist(), abs=1e-12)
        assert table.logged["bright/image"][member] == pytest.approx(rewards[-1])
    assert samples.mask.shape[1] == len(table.maps["bright"][0])


def test_a_reward_that_is_missing_for_a_predicted_image_is_refused() -> None:
    with pytest.raises(RewardError, match=r"rewards.seen is missing for an image.*domain.stepwise = false"):
        gains(RewardTable({"seen": [0.0, None]}), 2)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"window": {"size": 2}}, "window leaves some of them out; write window = null"),
        ({"reduce": "per_element"}, "write reduce = 'mean'"),
    ],
)
def test_decisions_that_are_not_all_transitions_are_refused(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        small(**changes)
