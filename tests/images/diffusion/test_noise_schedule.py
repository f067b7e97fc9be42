from __future__ import annotations

import inspect
from typing import Any

import pytest
import torch
from diffusers import (
    DDIMInverseScheduler,
    DDIMScheduler,
    DDPMScheduler,
    DPMSolverMultistepScheduler,
    DPMSolverSinglestepScheduler,
    EulerAncestralDiscreteScheduler,
    EulerDiscreteScheduler,
    FlowMatchEulerDiscreteScheduler,
    FlowMatchHeunDiscreteScheduler,
    HeunDiscreteScheduler,
    KDPM2DiscreteScheduler,
    LMSDiscreteScheduler,
    PNDMScheduler,
    UniPCMultistepScheduler,
)

from groupwise.config import ConfigError
from groupwise_images.diffusion.transition import (
    read_parametrisation,
    read_schedule,
    replaced_remark,
)


def test_a_flow_takes_away_equal_shares_before_its_shift() -> None:
    schedule = read_schedule(FlowMatchEulerDiscreteScheduler(), 4)
    assert schedule.noise.tolist() == pytest.approx([1.0, 0.75, 0.5, 0.25, 0.0])
    assert schedule.timestep.tolist() == pytest.approx([1000, 750, 500, 250])
    shifted = read_schedule(FlowMatchEulerDiscreteScheduler(shift=3.0), 4)
    assert shifted.noise.tolist() == pytest.approx([3 * s / (1 + 2 * s) for s in (1.0, 0.75, 0.5, 0.25, 0.0)])
    assert torch.equal(shifted.signal, 1 - shifted.noise)


def test_a_flow_in_the_schedulers_own_spacing_ends_at_its_smallest_level_and_zero() -> None:
    scheduler = FlowMatchEulerDiscreteScheduler()
    schedule = read_schedule(scheduler, 4, spacing="scheduler")
    scheduler.set_timesteps(4)
    assert schedule.noise.tolist() == scheduler.sigmas.double().tolist()
    assert schedule.noise[-2:].tolist() == pytest.approx([0.001, 0.0])


def test_dynamic_shifting_takes_its_mu() -> None:
    schedule = read_schedule(FlowMatchEulerDiscreteScheduler(use_dynamic_shifting=True), 3, shift=0.5)
    e = torch.tensor(0.5).exp()
    assert float(schedule.noise[1]) == pytest.approx(float(e / (e + (3 / 2 - 1))), abs=1e-6)


@pytest.mark.parametrize(
    "settings", [{}, {"steps_offset": 1, "set_alpha_to_one": False}, {"timestep_spacing": "trailing"}]
)
def test_other_schedules_are_read_as_ddim_reads_them(settings: dict[str, object]) -> None:
    scheduler = DDIMScheduler(clip_sample=False, **settings)
    schedule = read_schedule(scheduler, 10)
    scheduler.set_timesteps(10)
    assert schedule.timestep.tolist() == scheduler.timesteps.tolist()
    assert schedule.signal[:-1].square().tolist() == pytest.approx(
        scheduler.alphas_cumprod[scheduler.timesteps].tolist(), abs=1e-7
    )
    assert float(schedule.signal[-1] ** 2) == pytest.approx(float(scheduler.final_alpha_cumprod), abs=1e-7)
    assert (schedule.signal**2 + schedule.noise**2).tolist() == pytest.approx([1.0] * 11)


@pytest.mark.parametrize("skip_prk_steps", [True, False])
def test_pndm_gives_the_level_at_which_each_of_its_steps_begins(skip_prk_steps: bool) -> None:
    scheduler = PNDMScheduler(skip_prk_steps=skip_prk_steps, steps_offset=1)
    schedule = read_schedule(scheduler, 5)
    assert schedule.timestep.tolist() == [801, 601, 401, 201, 1]
    expected = [*scheduler.alphas_cumprod[[801, 601, 401, 201, 1]].tolist(), float(scheduler.alphas_cumprod[0])]
    assert schedule.signal.square().tolist() == pytest.approx(expected)


# Keys that SD's folders have, and that these classes do not read.
LEFT_OVER = {"set_alpha_to_one": False, "clip_sample": True, "skip_prk_steps": True, "use_flow_sigmas": True}


# Every family, every kind of levels, and those of second order with both of their own.
@pytest.mark.slow
@pytest.mark.parametrize(
    ("family", "levels"),
    [
        (EulerDiscreteScheduler, {"final_sigmas_type": "sigma_min"}),
        (EulerAncestralDiscreteScheduler, {}),
        (LMSDiscreteScheduler, {"use_karras_sigmas": True}),
        (HeunDiscreteScheduler, {"use_exponential_sigmas": True}),
        (KDPM2DiscreteScheduler, {}),
        (KDPM2DiscreteScheduler, {"use_karras_sigmas": True}),
        (DPMSolverMultistepScheduler, {"use_exponential_sigmas": True}),
        (DPMSolverSinglestepScheduler, {"final_sigmas_type": "sigma_min"}),
        (UniPCMultistepScheduler, {"final_sigmas_type": "sigma_min"}),
    ],
)
def test_levels_are_those_that_the_class_itself_makes_of_its_configuration(family: Any, levels: dict[str, Any]) -> None:
    left_over = {key: value for key, value in LEFT_OVER.items() if key not in inspect.signature(family).parameters}
    betas = {"beta_start": 0.00085, "beta_end": 0.012, "beta_schedule": "scaled_linear"}
    scheduler = family.from_config({**betas, **left_over, **levels, "timestep_spacing": "leading"})
    schedule = read_schedule(scheduler, 8)
    scheduler.set_timesteps(8)
    # Heun and KDPM2 list levels twice, one for each evaluation; Euler may end where its last step begins.
    own = scheduler.sigmas.tolist()
    if len(own) != 9:
        own = sorted(set(own), reverse=True)
    assert (schedule.noise / schedule.signal).tolist() == pytest.approx(own, rel=1e-5, abs=1e-6)
    assert schedule.kind == "variance_preserving"
    for timestep, signal in zip(schedule.timestep.tolist(), schedule.signal.tolist(), strict=False):
        near = scheduler.alphas_cumprod[[round(timestep)]].sqrt()
        assert abs(float(near) - signal) < 2e-3


def test_a_scheduler_that_goes_from_images_to_noise_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"do not fall: .* use DDIMScheduler"):
        read_schedule(DDIMInverseScheduler(clip_sample=False), 4)


def test_a_flow_whose_solver_has_levels_of_its_own_keeps_them_or_is_refused() -> None:
    flow = {"prediction_type": "flow_prediction", "use_flow_sigmas": True, "use_karras_sigmas": True}
    scheduler = UniPCMultistepScheduler(**flow)
    schedule = read_schedule(scheduler, 4)
    scheduler.set_timesteps(4)
    assert schedule.noise.tolist() == scheduler.sigmas.double().tolist()
    with pytest.raises(ConfigError, match=r"DPMSolverMultistepScheduler has noise levels up to .* at most 1"):
        read_schedule(DPMSolverMultistepScheduler(**flow), 4)


def test_a_start_at_pure_noise_tells_a_prediction_of_noise_nothing() -> None:
    settings = {"clip_sample": False, "rescale_betas_zero_snr": True, "timestep_spacing": "trailing"}
    with pytest.raises(ConfigError, match=r"begins at pure noise .* write timestep_spacing = 'leading'"):
        read_schedule(DDIMScheduler(**settings), 5)
    assert float(read_schedule(DDIMScheduler(**settings, prediction_type="v_prediction"), 5).signal[0]) == 0
    # As diffusers' own: its first level is not quite noise.
    assert (
        0
        < float(
            read_schedule(EulerDiscreteScheduler(rescale_betas_zero_snr=True, timestep_spacing="trailing"), 5).signal[0]
        )
        < 1e-3
    )


def test_what_a_model_predicts() -> None:
    assert [
        read_parametrisation(DDPMScheduler(prediction_type=kind)) for kind in ("epsilon", "v_prediction", "sample")
    ] == [
        "epsilon",
        "v_prediction",
        "sample",
    ]
    with pytest.raises(
        ConfigError,
        match=(
            r"prediction_type = 'flow_prediction'; allowed: .* FlowMatchEulerDiscreteScheduler into the model's"
            r" scheduler/"
        ),
    ):
        read_parametrisation(DPMSolverMultistepScheduler(prediction_type="flow_prediction"))


@pytest.mark.parametrize("scheduler_class", [UniPCMultistepScheduler, DPMSolverMultistepScheduler])
def test_solvers_that_remember_earlier_steps_lend_their_flow(scheduler_class: Any) -> None:
    scheduler = scheduler_class(prediction_type="flow_prediction", use_flow_sigmas=True, flow_shift=3.0)
    assert read_parametrisation(scheduler) == "flow"
    uniform = read_schedule(scheduler, 4)
    expected = torch.tensor([1.0, 0.9, 0.75, 0.5, 0.0], dtype=torch.float64)  # 3 s / (1 + 2 s)
    assert torch.allclose(uniform.time, expected, atol=2e-6)
    assert torch.allclose(uniform.timestep, 1000 * expected[:-1], atol=1.0)
    scheduler.set_timesteps(4)
    assert torch.equal(read_schedule(scheduler, 4, spacing="scheduler").time, scheduler.sigmas.double())


@pytest.mark.parametrize("key", ["clip_sample", "thresholding"])
def test_a_clip_without_gradient_is_refused(key: str) -> None:
    with pytest.raises(ConfigError, match=f"{key} = false"):
        read_schedule(DDIMScheduler(**{"clip_sample": False, key: True}), 5)


def test_a_scheduler_that_is_replaced_is_told() -> None:
    assert replaced_remark(FlowMatchEulerDiscreteScheduler()) == replaced_remark(DDIMScheduler()) == []
    (remark,) = replaced_remark(FlowMatchHeunDiscreteScheduler(shift=3.0))
    assert remark.startswith("scheduler: FlowMatchHeunDiscreteScheduler is replaced by FlowMatchEulerDiscreteScheduler")
