"""An adapter on every pipeline that takes one: trained alone, switched off, saved and loaded as diffusers does it."""

from __future__ import annotations

import json
from pathlib import Path

import diffusers
import pytest
import torch
from safetensors.torch import load_file
from tests.images.diffusion.models.test_pipeline import by_the_pipeline, ode, opened, prompts
from tests.images.diffusion.models.tiny import WITH_ADAPTERS, others_slow, saved

from groupwise.config import ConfigError
from groupwise.learner.local import LocalLearner
from groupwise.reference import FrozenReference, ReferencePolicy
from groupwise_images.diffusion.model import LoraConfig
from groupwise_images.diffusion.models.files import WEIGHTS
from groupwise_images.diffusion.models.pipeline import PipelineDenoiser

LORA = LoraConfig(rank=2, alpha=8.0)


def trained(denoiser: PipelineDenoiser) -> PipelineDenoiser:
    """With an adapter that does something."""
    generator = torch.Generator().manual_seed(3)
    with torch.no_grad():
        for parameter in denoiser.module.parameters():
            if parameter.requires_grad:
                parameter.copy_(0.3 * torch.randn(parameter.shape, generator=generator))
    return denoiser


@pytest.mark.slow
@pytest.mark.parametrize("name", others_slow(WITH_ADAPTERS))
def test_the_adapter_is_what_trains_what_is_switched_off_and_what_diffusers_loads(name: str, tmp_path: Path) -> None:
    folder = saved(name, tmp_path / "base")
    plain, denoiser = opened(folder, name), trained(opened(folder, name, lora=LORA))
    noise = torch.randn(2, *denoiser.latent_shape, generator=torch.Generator().manual_seed(1))
    before, after = (ode(each, noise, prompts(name), 2.0) for each in (plain, denoiser))
    assert float((after - before).abs().max()) > 1e-3

    names = [each for each, parameter in denoiser.module.named_parameters() if parameter.requires_grad]
    assert names
    assert all("lora_" in each for each in names)
    with ReferencePolicy(FrozenReference(adapter="off"), LocalLearner(denoiser.module)).active():
        assert torch.equal(ode(denoiser, noise, prompts(name), 2.0), before)
    assert torch.equal(ode(denoiser, noise, prompts(name), 2.0), after)

    denoiser.save(tmp_path / "adapter")
    part = denoiser.adapter.denoiser
    assert sorted(each.name for each in (tmp_path / "adapter").iterdir()) == ["base_model.json", WEIGHTS]
    assert all(key.startswith(f"{part}.") and ".lora_" in key for key in load_file(tmp_path / "adapter" / WEIGHTS))
    pipe = diffusers.DiffusionPipeline.from_pretrained(folder)
    pipe.set_progress_bar_config(disable=True)
    pipe.load_lora_weights(tmp_path / "adapter")
    assert float((by_the_pipeline(pipe, name, noise, prompts(name), 2.0) - after).abs().max()) < 2e-5

    again = opened(tmp_path / "adapter", name, lora=LORA)
    assert torch.equal(ode(again, noise, prompts(name), 2.0), after)


def test_weights_in_bfloat16_carry_an_adapter_in_fp32(tmp_path: Path) -> None:
    denoiser = opened(
        saved("StableDiffusionPipeline", tmp_path), "StableDiffusionPipeline", dtype="bfloat16", lora=LORA
    )
    assert {parameter.dtype for parameter in denoiser.module.parameters() if parameter.requires_grad} == {torch.float32}
    assert {parameter.dtype for parameter in denoiser.module.parameters() if not parameter.requires_grad} == {
        torch.bfloat16
    }
    latents = torch.randn(2, *denoiser.latent_shape)
    denoiser.predict(
        latents, torch.full((2,), 500.0), denoiser.encode(prompts("StableDiffusionPipeline")), 1.0
    ).sum().backward()
    assert all(parameter.grad is not None for parameter in denoiser.module.parameters() if parameter.requires_grad)


def test_adapters_that_cannot_be(tmp_path: Path) -> None:
    folder = saved("StableDiffusionPipeline", tmp_path / "sd")
    with pytest.raises(ConfigError, match=r"diffusers has no adapters for DiTTransformer2DModel; leave model.lora out"):
        opened(saved("DiTPipeline", tmp_path / "dit"), "DiTPipeline", lora=LORA)
    with pytest.raises(ConfigError, match=r"model.lora.target_modules = \['nothing'\]"):
        opened(folder, "StableDiffusionPipeline", lora=LoraConfig(target_modules=("nothing",)))
    opened(folder, "StableDiffusionPipeline", lora=LORA).save(tmp_path / "adapter")
    with pytest.raises(ConfigError, match=r"is an adapter of .*; write model.lora with the rank"):
        opened(tmp_path / "adapter", "StableDiffusionPipeline")
    with pytest.raises(ConfigError, match=r"model.lora does not fit the adapter .* they differ in .*lora_[AB]"):
        opened(tmp_path / "adapter", "StableDiffusionPipeline", lora=LoraConfig(rank=3))
    assert json.loads((tmp_path / "adapter" / "base_model.json").read_text())["path"] == str(folder)
