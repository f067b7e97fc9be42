"""Noised copies of sampled images: their fields are those of a plain loop, in any cut, with the sampler's graph or
without it.
"""

from __future__ import annotations

from typing import Any

import pytest
import torch
from tests.images.diffusion.small import bright as bright
from tests.images.diffusion.small import domain, gradient, nudge
from tests.oracles import flow
from torch import Tensor

from groupwise.config import ConfigError, validate
from groupwise.domain.protocol import Matches, Samples
from groupwise.objective import Objective
from groupwise.objective.matching import Mirrored, Velocity
from groupwise.records import Scored
from groupwise.streams import Streams
from groupwise_images.diffusion.domain import DiffusionDomain

ROWS = torch.arange(6)
NFT = frozenset({"log_prob", "positive_error", "negative_error", "exact_divergence"})
PLAIN = validate(Velocity, {"times": {"num": 3}})
MIRRORED = validate(Mirrored, {"strength": 0.4, "times": {"num": 3, "levels": "uniform", "shift": 2.0}})


def noised(given: DiffusionDomain, matching: Any = PLAIN, step: int = 0) -> Samples:
    samples = given.sample(given.prompts(range(2)), 3, streams=Streams(0), step=step, settings={}, requires=frozenset())
    return given.noised(samples, matching, streams=Streams(0), step=step)


def test_samples_without_log_probs_are_drawn_without_noise() -> None:
    small = domain()
    samples = small.sample(small.prompts([4]), 2, streams=Streams(0), step=0, settings={}, requires=frozenset())
    assert not samples.mask.any()
    latents = torch.stack(
        [
            torch.randn(4, 1, 8, 8, generator=Streams(0).generator("path", 0, samples.prompts[0].key, member))[0]
            for member in range(2)
        ]
    ).double()
    condition = small.denoiser.encode([samples.prompts[0].columns] * 2)
    with torch.no_grad():
        for level in (1.0, 0.75, 0.5, 0.25):
            velocity = small.denoiser.predict(latents, torch.full((2,), 1000 * level).double(), condition, 1.0)
            latents = latents - 0.25 * velocity
    assert torch.allclose(samples.payload["latents"], latents, rtol=0, atol=1e-10)


@pytest.mark.parametrize("matching", [PLAIN, MIRRORED], ids=["velocity", "mirrored"])
def test_fields_are_those_of_a_plain_loop(matching: Any) -> None:
    small = domain()
    samples = small.with_reference(noised(small, matching))
    payload, condition = samples.payload, small.denoiser.encode([prompt.columns for prompt in samples.prompts])
    nudge(small)
    scored = small.score(samples, ROWS, NFT if matching is MIRRORED else NFT - {"positive_error", "negative_error"})
    for member in range(6):
        for copy in range(3):
            clean, noise = payload["latents"][member], payload["copy_noise"][member, copy]
            time = float(payload["copy_time"][member, copy])
            generator = Streams(0).generator("matching", 0, samples.prompts[member // 3].key, member % 3)
            torch.rand(3, generator=generator, dtype=torch.float64)
            assert torch.equal(noise, torch.randn(3, 1, 8, 8, generator=generator)[copy].double())
            latents = (1 - time) * clean + time * noise
            velocity = small.denoiser.predict(
                latents[None], torch.tensor([1000 * time]).double(), condition.select(samples.group[member][None]), 1.0
            )[0]
            old = payload["old_prediction"][member, copy]
            if matching is PLAIN:
                expected = flow.log_prob_of(velocity, clean, noise, time, weighting="uniform")
                assert float(scored.log_prob[member, copy]) == pytest.approx(float(expected), abs=1e-9)
            else:
                errors = flow.errors_of(velocity, old, clean, noise, time, strength=0.4)
                assert scored.positive_error is not None
                assert scored.negative_error is not None
                assert float(scored.positive_error[member, copy]) == pytest.approx(float(errors[0]), abs=1e-9)
                assert float(scored.negative_error[member, copy]) == pytest.approx(float(errors[1]), abs=1e-9)
            assert scored.exact_divergence is not None
            # The reference was the policy before it was moved.
            assert float(scored.exact_divergence[member, copy]) == pytest.approx(
                float((velocity - old).square().mean()), abs=1e-9
            )


def test_times_of_a_schedule_are_its_levels() -> None:
    levels = noised(domain()).payload["copy_time"]
    assert set(levels.flatten().tolist()) <= {1.0, 0.75, 0.5, 0.25}
    assert bool((levels.diff(dim=1) >= 0).all())
    assert len(set(map(tuple, levels.tolist()))) > 1


def cotangents(shape: torch.Size, names: frozenset[str]) -> Scored:
    generator = torch.Generator().manual_seed(5)
    return Scored.from_tensors(
        {name: torch.randn(shape, generator=generator, dtype=torch.float64) for name in sorted(names)}
    )


def through(given: DiffusionDomain, samples: Samples) -> Tensor:
    given.backward(samples, ROWS, cotangents(samples.mask.shape, NFT))
    return gradient(given)


def test_slices_have_the_gradient_of_the_whole() -> None:
    whole, cut = domain(), domain({"transitions_at_once": 4})
    for given in (whole, cut):
        samples = given.with_reference(noised(given, MIRRORED))
        nudge(given)
        through(given, samples)
    assert float(gradient(whole).norm()) > 0
    assert torch.allclose(gradient(cut), gradient(whole), rtol=0, atol=1e-10)


def test_the_first_update_uses_the_graph_of_the_noised_copies(monkeypatch: pytest.MonkeyPatch) -> None:
    kept, anew = domain(), domain()
    samples = {id(given): given.with_reference(noised(given, MIRRORED)) for given in (kept, anew)}
    anew._sampler_graph = None
    expected = through(anew, samples[id(anew)])
    monkeypatch.setattr(kept.denoiser, "predict", lambda *_: pytest.fail("the model ran again"))
    assert torch.allclose(through(kept, samples[id(kept)]), expected, rtol=0, atol=1e-12)


def test_recorded_fields_are_those_of_the_policy_that_sampled() -> None:
    small = domain()
    samples = small.with_reference(noised(small, MIRRORED))
    again = small.score(samples, ROWS, NFT)
    assert samples.recorded is not None
    for name, value in samples.recorded.tensors().items():
        assert torch.allclose(value, getattr(again, name), rtol=0, atol=1e-10), name
    assert torch.equal(samples.old_log_prob, samples.recorded.log_prob)


def test_one_start_for_a_group_is_refused_without_noise() -> None:
    small = domain({"initial_noise": "group"})
    assert isinstance(small, Matches)
    with pytest.raises(ConfigError, match=r"initial_noise = \"group\".*matching.deterministic = false"):
        small.check_matching(PLAIN)
    small.check_matching(Velocity(deterministic=False))


def test_the_sampler_of_the_domain_may_draw_the_groups() -> None:
    small = domain()
    objective = Objective.preset("awm", **{"matching.deterministic": False})
    samples = small.sample(
        small.prompts([0]), 2, streams=Streams(0), step=0, settings={}, requires=objective.requires_sampled
    )
    assert samples.mask.all()
    copies = small.noised(samples, PLAIN, streams=Streams(0), step=0)
    assert copies.mask.shape == (2, 3)
    assert copies.step_size is None
