"""What holds for every sampler: the marginals of the flow where the score is known, and the noise that a transition
takes away.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
import torch
from diffusers import DDIMScheduler, FlowMatchEulerDiscreteScheduler
from tests.images.diffusion.sampler.toy import moments

from groupwise.experiment import load_experiment
from groupwise_images.diffusion.config import DiffusionConfig
from groupwise_images.diffusion.sampler import CPS, DDIM, ODE, Auto, DanceSDE, FlowSDE, Step
from groupwise_images.diffusion.transition import flow_schedule, read_schedule

# Images N(0.7, 0.4^2). Levels stay off 0, where the last transition is deterministic.
MEAN, STD, NUM = 0.7, 0.4, 2000


@pytest.mark.parametrize(
    "sampler",
    [
        Auto(),
        *(
            pytest.param(each, marks=pytest.mark.slow)
            for each in (FlowSDE(noise=0.7), ODE(), DanceSDE(noise=0.5), DDIM(eta=1.0), DDIM(eta=0.5))
        ),
    ],
    ids=lambda each: each.kind,
)
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


@pytest.mark.slow
@pytest.mark.parametrize("name", ["diffusion_prompts", "diffusion", "source_002"])
def test_no_shipped_experiment_draws_with_a_sampler_that_stays_narrow(name: str) -> None:
    sampler = load_experiment(name).domain.sampler
    scheduler = PRESERVING if name == "source_002" else FLOW
    assert abs(deviations(sampler, scheduler, [1000])[0] - STD) < 0.011 * STD


def test_cps_stays_narrow_by_as_much_as_the_guide_says() -> None:
    found = deviations(CPS(eta=0.7), FLOW)
    assert [round(each, 3) for each in found] == [0.292, 0.324, 0.336, 0.339]
    assert round(1 - found[2] / STD, 2) == 0.16
    assert [round(each, 3) for each in deviations(FlowSDE(noise=0.7), FLOW, [10, 40, 200])] == [0.381, 0.397, 0.4]
    assert [round(each, 3) for each in deviations(DDIM(eta=1.0), FLOW, [10, 40, 200])] == [0.302, 0.367, 0.392]


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


def test_flow_sde_leaves_more_noise_the_larger_its_steps() -> None:
    schedule = flow_schedule([1.0, 0.6, 0.3, 0.0])
    _, variance = moments(FlowSDE(noise=0.7), schedule, "flow", MEAN, 0.0, 2)
    assert variance > 1.5 * 0.3**2


@pytest.mark.parametrize("sampler", [Auto(), FlowSDE(), DanceSDE(), CPS(), DDIM(), ODE()], ids=lambda each: each.kind)
def test_computes_in_double_precision_for_many_transitions_at_once(sampler: Any) -> None:
    schedule = flow_schedule([1.0, 0.75, 0.5, 0.25, 0.0])
    together = sampler(Step.of(schedule, torch.tensor([2, 0, 1])))
    alone = [sampler(Step.of(schedule, torch.tensor([index]))) for index in (2, 0, 1)]
    assert together.std.dtype == torch.float64
    assert together.std.tolist() == [float(each.std) for each in alone]
    assert together.kept.tolist() == [float(each.kept) for each in alone]
    assert bool(together.std.isfinite().all())
