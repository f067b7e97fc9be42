from __future__ import annotations

import math

import pytest
import torch
from diffusers import DDIMScheduler
from pydantic import ValidationError
from tests.images.diffusion.sampler.toy import at

from groupwise_images.diffusion.sampler import DDIM, ODE
from groupwise_images.diffusion.transition import read_schedule, transition


@pytest.mark.parametrize("eta", [0.4, 1.0])
@pytest.mark.parametrize("prediction_type", ["epsilon", "v_prediction", "sample"])
def test_a_path_is_the_schedulers_own(eta: float, prediction_type: str) -> None:
    """A loop over the scheduler alone: its own times, its own step, the same noise; log-probs by torch's Normal around
    its noiseless mean.
    """
    scheduler = DDIMScheduler(clip_sample=False, set_alpha_to_one=True, prediction_type=prediction_type)
    schedule = read_schedule(scheduler, 10)
    scheduler.set_timesteps(10)
    generator = torch.Generator().manual_seed(0)
    theirs = ours = torch.randn(2, 1, 3, 3, generator=generator)
    for index, timestep in enumerate(scheduler.timesteps):
        prediction = torch.randn(theirs.shape, generator=generator)
        noise = torch.randn(theirs.shape, generator=generator)
        assert int(timestep) == int(schedule.timestep[index])
        if index < 9:
            found = transition(DDIM(eta=eta), prediction_type, ours, prediction, at(schedule, index))
            without = scheduler.step(
                prediction, timestep, theirs, eta=eta, variance_noise=torch.zeros_like(noise)
            ).prev_sample
            std = eta * scheduler._get_variance(timestep, timestep - 100) ** 0.5
            ours = found.draw(noise)
        else:
            ours = transition(ODE(), prediction_type, ours, prediction, at(schedule, index)).draw(noise)
        theirs = scheduler.step(prediction, timestep, theirs, eta=eta, variance_noise=noise).prev_sample
        assert torch.allclose(ours, theirs, atol=2e-5 * float(theirs.abs().max()))
        if index < 9:
            expected = torch.distributions.Normal(without, std).log_prob(theirs).flatten(1).mean(1)
            assert torch.allclose(found.log_prob(ours, "mean"), expected, atol=1e-4)


def test_the_last_transition_has_no_noise() -> None:
    schedule = read_schedule(DDIMScheduler(clip_sample=False, set_alpha_to_one=True), 5)
    assert float(DDIM()(at(schedule, 4)).std) == 0.0


def test_eta_one_is_the_ancestral_posterior() -> None:
    # DDPM's posterior variance: beta_t (1 - abar_{t-1}) / (1 - abar_t), for neighbouring training steps.
    scheduler = DDIMScheduler(clip_sample=False)
    schedule = read_schedule(scheduler, 1000)
    beta, bar = float(scheduler.betas[500]), scheduler.alphas_cumprod.double()
    expected = beta * float((1 - bar[499]) / (1 - bar[500]))
    assert float(DDIM()(at(schedule, 499)).std) == pytest.approx(math.sqrt(expected), rel=1e-4)


@pytest.mark.parametrize("eta", [0.0, -0.5, 1.5])
def test_an_eta_without_a_log_prob_is_refused(eta: float) -> None:
    with pytest.raises(ValidationError) as error:
        DDIM(eta=eta)
    assert "eta" in str(error.value)
    if eta == 0:
        assert "without noise" in str(error.value)
