from __future__ import annotations

import math

import torch
from tests.images.restoration.small import EVERYTHING, domain, nudge, sampled

from groupwise.streams import Streams
from groupwise_images.restoration.policy import PixelPolicy, Pixels

ROWS = torch.arange(6)


def test_log_probs_are_those_of_torchs_normal() -> None:
    given = domain({"policy": {"block": 2}})
    samples = sampled(given)
    nudge(given)
    mean = given.module(samples.payload["degraded"])
    each = torch.distributions.Normal(mean, 0.2).log_prob(samples.payload["action"])
    blocks = each.view(6, 4, 2, 4, 2).sum((2, 4)).flatten(1)
    found = given.score(samples, ROWS, EVERYTHING)
    assert torch.allclose(found.log_prob, blocks, atol=1e-11)
    assert found.entropy is not None
    assert torch.allclose(
        found.entropy, torch.full_like(blocks, 4 * (0.5 * math.log(2 * math.pi * math.e) + math.log(0.2)))
    )


def test_the_score_norm_is_the_gradient_by_the_mean() -> None:
    policy = PixelPolicy(Pixels(sigma=0.5, block=2))
    mean = torch.zeros(1, 1, 2, 2, dtype=torch.float64, requires_grad=True)
    payload = {
        "action": torch.tensor([[[[0.5, 0.0], [0.0, 0.0]]]], dtype=torch.float64),
        "mean": mean.detach(),
        "sigma": torch.tensor([0.5]).double(),
    }
    found = policy.fields([mean], payload, frozenset({"score_norm"}))
    found["log_prob"].sum().backward()
    assert mean.grad is not None
    # (0.5 - 0) / 0.25 = 2 at one pixel.
    assert mean.grad.norm() == found["score_norm"].item() == 2.0


def test_the_mean_shift_is_the_noise_times_the_move() -> None:
    policy = PixelPolicy(Pixels(sigma=0.5, block=2))
    payload = {
        "action": torch.tensor([[[[0.5, 0.0], [0.0, -0.5]]]], dtype=torch.float64),
        "mean": torch.zeros(1, 1, 2, 2, dtype=torch.float64),
        "sigma": torch.tensor([0.5]).double(),
    }
    # noise (1, 0, 0, -1), move (0.2, 1, 1, 0): (0.2 + 0 + 0 + 0) / 4.
    moved = torch.tensor([[[[0.2, 1.0], [1.0, 0.0]]]], dtype=torch.float64)
    assert torch.allclose(
        policy.fields([moved], payload, frozenset({"mean_shift"}))["mean_shift"], torch.tensor([[0.05]]).double()
    )


def test_antithetic_members_mirror_each_other_and_an_odd_last_one_stands_alone() -> None:
    given = domain()
    samples = sampled(given, group_size=5, reference=False)
    noise = (samples.payload["action"] - samples.payload["mean"])[:5]
    assert torch.allclose(noise[0], -noise[1], atol=1e-12)
    assert torch.allclose(noise[2], -noise[3], atol=1e-12)
    assert not torch.allclose(noise[0].abs(), noise[2].abs())
    assert noise[4].abs().max() > 0
    independent = sampled(domain({"policy": {"antithetic": False}}), reference=False).payload
    first, second = (independent["action"] - independent["mean"])[:2]
    assert not torch.allclose(first, -second)


def test_a_schedule_changes_the_spread_and_it_is_stored() -> None:
    given = domain()
    samples = given.sample(
        given.prompts([0]), 2, streams=Streams(1), step=0, settings={"sigma": 0.05}, requires=frozenset()
    )
    assert samples.payload["sigma"].tolist() == [0.05, 0.05]
    assert samples.settings == {"sigma": 0.05}
