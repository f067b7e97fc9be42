"""Samplers: the paths of papers and schedulers, the marginals of the flow, and what is refused."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import pytest
import torch
from diffusers import DDIMScheduler, FlowMatchEulerDiscreteScheduler
from pydantic import ValidationError
from tests.marks import slow_but
from torch import Tensor

from groupwise_images.diffusion.config import DiffusionConfig
from groupwise_images.diffusion.sampler import CPS, DDIM, ODE, Auto, DanceSDE, FlowSDE, Step
from groupwise_images.diffusion.transition import Schedule, Transition, flow_schedule, read_schedule, transition


def at(schedule: Schedule, index: int) -> Step:
    return Step.of(schedule, torch.tensor([index]))


def known(parametrisation: str, latents: Tensor, a: float, b: float, mean: float, std: float) -> Tensor:
    """What a perfect model predicts where images are `N(mean, std^2)`: `x0 | x` and `e | x` are linear in `x`."""
    variance = a**2 * std**2 + b**2
    clean = mean + a * std**2 / variance * (latents - a * mean)
    noise = b / variance * (latents - a * mean)
    return {"flow": noise - clean, "epsilon": noise, "v_prediction": a * noise - b * clean, "sample": clean}[
        parametrisation
    ]


def moments(
    sampler: Any, schedule: Schedule, parametrisation: str, mean: float, std: float, upto: int
) -> tuple[float, float]:
    """Mean and variance of the latents after `upto` transitions from pure noise, followed exactly: each transition is
    affine.
    """
    a, b = float(schedule.signal[0]), float(schedule.noise[0])
    centre, variance = a * mean, a**2 * std**2 + b**2
    for index in range(upto):
        a, b = float(schedule.signal[index]), float(schedule.noise[index])
        probes = torch.tensor([[0.0], [1.0]], dtype=torch.float64)
        step = Step.of(schedule, torch.tensor([index, index]))
        found: Transition = transition(
            sampler, parametrisation, probes, known(parametrisation, probes, a, b, mean, std), step
        )
        offset, slope = float(found.mean[0]), float(found.mean[1] - found.mean[0])
        centre, variance = offset + slope * centre, slope**2 * variance + float(found.std[0]) ** 2
    return centre, variance


def flow_sde(x: Tensor, v: Tensor, t: Tensor, dt: Tensor, first: Tensor) -> tuple[Tensor, Tensor]:
    """Flow-GRPO's equation 9, with the paper's names: the mean and the standard deviation of a step."""
    sd = 0.7 * (t / (1 - (first if t == 1 else t))).sqrt()
    return x + (v + sd**2 / (2 * t) * (x + (1 - t) * v)) * dt, sd * (-dt).sqrt()


def dance_sde(x: Tensor, v: Tensor, t: Tensor, dt: Tensor, first: Tensor) -> tuple[Tensor, Tensor]:
    """DanceGRPO's step, as its code computes it."""
    score = -(x - (x - t * v) * (1 - t)) / t**2
    return x + dt * v - 0.5 * 0.3**2 * score * dt, 0.3 * (-dt).sqrt()


@pytest.mark.parametrize(("sampler", "paper"), [(FlowSDE(noise=0.7), flow_sde), (DanceSDE(noise=0.3), dance_sde)])
def test_a_path_is_the_papers_with_the_schedulers_levels(sampler: Any, paper: Any) -> None:
    scheduler = FlowMatchEulerDiscreteScheduler(shift=3.0)
    schedule = read_schedule(scheduler, 6)
    sigmas = scheduler.sigmas.double()
    generator = torch.Generator().manual_seed(0)
    theirs = ours = torch.randn(2, 1, 3, 3, generator=generator, dtype=torch.float64)
    for index in range(5):
        dt = sigmas[index + 1] - sigmas[index]
        mean, std = paper(theirs, torch.sin(2 * theirs + index), sigmas[index], dt, sigmas[1])
        noise = torch.randn(theirs.shape, generator=generator, dtype=torch.float64)
        theirs = mean + std * noise
        found = transition(sampler, "flow", ours, torch.sin(2 * ours + index), at(schedule, index))
        ours = found.draw(noise)
        assert torch.allclose(ours, theirs, atol=1e-12)
        expected = torch.distributions.Normal(mean, std).log_prob(theirs)
        assert torch.allclose(found.log_prob(ours, "mean"), expected.flatten(1).mean(1), atol=1e-10)
        assert float(found.step_size) == pytest.approx(float(-dt), abs=1e-12)


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


def test_eta_one_is_the_ancestral_posterior() -> None:
    # DDPM's posterior variance: beta_t (1 - abar_{t-1}) / (1 - abar_t), for neighbouring training steps.
    scheduler = DDIMScheduler(clip_sample=False)
    schedule = read_schedule(scheduler, 1000)
    beta, bar = float(scheduler.betas[500]), scheduler.alphas_cumprod.double()
    expected = beta * float((1 - bar[499]) / (1 - bar[500]))
    assert float(DDIM()(at(schedule, 499)).std) == pytest.approx(math.sqrt(expected), rel=1e-4)


def test_by_hand() -> None:
    # From s = 0.5 to 0.25, x = 2, v = 1: x0 = 1.5, e = 2.5.
    step, x, v = at(flow_schedule([0.5, 0.25, 0.0]), 0), torch.tensor([[2.0]]), torch.tensor([[1.0]])
    # eta = 1/3 turns by 30 degrees.
    cps = transition(CPS(eta=1 / 3), "flow", x, v, step)
    assert float(cps.mean) == pytest.approx(0.75 * 1.5 + 0.25 * math.cos(math.pi / 6) * 2.5)
    assert float(cps.std) == pytest.approx(0.125)
    # a = 1: g = 1, std = sqrt(0.25); mean = 2 - 0.25 (1 + (2 + 0.5)) = 1.125.
    flow = transition(FlowSDE(noise=1.0), "flow", x, v, step)
    assert (float(flow.mean), float(flow.std)) == (1.125, 0.5)


def test_a_flow_goes_as_the_scheduler_goes() -> None:
    for shift in (1.0, 3.0):
        scheduler = FlowMatchEulerDiscreteScheduler(shift=shift)
        schedule = read_schedule(scheduler, 8)
        theirs = ours = torch.randn(2, 1, 4, 4, generator=torch.Generator().manual_seed(0))
        for index, timestep in enumerate(scheduler.timesteps):
            velocity = torch.sin(3 * theirs + index)
            found = transition(ODE(), "flow", ours, torch.sin(3 * ours + index), at(schedule, index))
            assert float(found.std) == 0.0
            ours = found.mean
            theirs = scheduler.step(velocity, timestep, theirs).prev_sample
            assert torch.allclose(ours, theirs, atol=1e-5)


def test_a_variance_preserving_schedule_goes_as_ddim_without_noise() -> None:
    scheduler = DDIMScheduler(clip_sample=False)
    schedule = read_schedule(scheduler, 10)
    scheduler.set_timesteps(10)
    theirs = ours = torch.randn(2, 1, 4, 4, generator=torch.Generator().manual_seed(0))
    for index, timestep in enumerate(scheduler.timesteps):
        ours = transition(ODE(), "epsilon", ours, torch.sin(ours), at(schedule, index)).mean
        theirs = scheduler.step(torch.sin(theirs), timestep, theirs, eta=0.0).prev_sample
        assert torch.allclose(ours, theirs, atol=2e-4)


@pytest.mark.parametrize(
    ("sampler", "settings"),
    [
        (DDIM, {"eta": 0.0}),
        (DDIM, {"eta": 1.5}),
        (CPS, {"eta": 0.0}),
        (FlowSDE, {"noise": 0.0}),
        (DanceSDE, {"noise": -1}),
    ],
)
def test_no_noise_is_refused(sampler: Any, settings: dict[str, float]) -> None:
    with pytest.raises(ValidationError, match=next(iter(settings))):
        sampler(**settings)


# Images N(0.7, 0.4^2). Levels stay off 0, where the last transition is deterministic.
MEAN, STD, NUM = 0.7, 0.4, 2000


SAMPLERS = (Auto(), FlowSDE(noise=0.7), ODE(), DanceSDE(noise=0.5), DDIM(eta=1.0), DDIM(eta=0.5))


@pytest.mark.parametrize("sampler", slow_but(SAMPLERS[:1], SAMPLERS), ids=lambda each: each.kind)
def test_small_steps_have_the_flows_marginals(sampler: Any) -> None:
    schedule = flow_schedule([1 - step / NUM for step in range(NUM + 1)])
    for upto in (NUM // 2, NUM * 9 // 10):
        level = float(schedule.noise[upto])
        centre, variance = moments(sampler, schedule, "flow", MEAN, STD, upto)
        assert centre == pytest.approx((1 - level) * MEAN, abs=2e-3)
        assert variance == pytest.approx((1 - level) ** 2 * STD**2 + level**2, rel=6e-3)


def test_without_the_score_the_marginals_are_others() -> None:
    # The test above can fail: noise added to the flow without the score's pull spreads the latents.
    schedule = flow_schedule([1 - step / NUM for step in range(NUM + 1)])

    def careless(step: Any) -> Any:
        spread = FlowSDE(noise=0.7)(step)
        return type(spread)(step.next_noise, spread.std)

    _, variance = moments(careless, schedule, "flow", MEAN, STD, NUM // 2)
    assert variance > 1.2 * (0.25 * STD**2 + 0.25)


def deviations(sampler: Any, scheduler: Any, numbers: Sequence[int] = (10, 40, 200, 1000)) -> list[float]:
    """Of the images, after so many transitions of a perfect model."""
    kind = "flow" if isinstance(scheduler, FlowMatchEulerDiscreteScheduler) else "epsilon"
    return [moments(sampler, read_schedule(scheduler, num), kind, MEAN, STD, num)[1] ** 0.5 for num in numbers]


FLOW, SHIFTED = FlowMatchEulerDiscreteScheduler(), FlowMatchEulerDiscreteScheduler(shift=3.0)
PRESERVING = DDIMScheduler(clip_sample=False)


@pytest.mark.parametrize(
    "scheduler",
    [
        pytest.param(FLOW, id="flow"),
        pytest.param(SHIFTED, id="shifted", marks=pytest.mark.slow),
        pytest.param(PRESERVING, id="variance preserving", marks=pytest.mark.slow),
    ],
)
def test_with_more_steps_the_images_of_the_default_come_to_spread_as_the_data_do(scheduler: Any) -> None:
    missing = [
        abs(deviation - STD) / STD
        for deviation in deviations(DiffusionConfig.model_fields["sampler"].default, scheduler)
    ]
    assert missing[0] > missing[1] > missing[2]

    assert missing[2] < 0.05
    assert missing[3] < 0.011


@pytest.mark.parametrize("eta", [0.3, 1.0])
def test_ddim_has_the_marginals_of_a_variance_preserving_schedule(eta: float) -> None:
    schedule = read_schedule(DDIMScheduler(clip_sample=False), 1000)
    centre, variance = moments(DDIM(eta=eta), schedule, "epsilon", MEAN, STD, 900)
    a, b = float(schedule.signal[900]), float(schedule.noise[900])
    assert centre == pytest.approx(a * MEAN, abs=5e-3)
    assert variance == pytest.approx(a**2 * STD**2 + b**2, rel=1e-2)


@pytest.mark.parametrize("sampler", [CPS(eta=0.3), CPS(eta=1.0), DDIM(eta=1.0), ODE()], ids=lambda each: each.kind)
def test_noise_kept_and_new_add_up_to_the_level_at_any_step_size(sampler: Any) -> None:
    # Images that are one point: the predicted noise is the real one, and three steps are as exact as two thousand.
    schedule = flow_schedule([1.0, 0.6, 0.3, 0.0])
    for upto in (1, 2, 3):
        level = float(schedule.noise[upto])
        centre, variance = moments(sampler, schedule, "flow", MEAN, 0.0, upto)
        assert centre == pytest.approx((1 - level) * MEAN, abs=1e-12)
        assert variance == pytest.approx(level**2, abs=1e-12)


@pytest.mark.parametrize("sampler", [Auto(), FlowSDE(), DanceSDE(), CPS(), DDIM(), ODE()], ids=lambda each: each.kind)
def test_computes_in_double_precision_for_many_transitions_at_once(sampler: Any) -> None:
    schedule = flow_schedule([1.0, 0.75, 0.5, 0.25, 0.0])
    together = sampler(Step.of(schedule, torch.tensor([2, 0, 1])))
    alone = [sampler(Step.of(schedule, torch.tensor([index]))) for index in (2, 0, 1)]
    assert together.std.dtype == torch.float64
    assert together.std.tolist() == [float(each.std) for each in alone]
    assert together.kept.tolist() == [float(each.kept) for each in alone]
    assert bool(together.std.isfinite().all())
