"""The defaults of a pipeline's adapter, and what they refuse."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
import torch

from groupwise.config import ConfigError
from groupwise_images.diffusion.pipeline_adapter import PipelineAdapter, latent_size


class Plain(PipelineAdapter):
    pipeline = "NoSuchPipeline"

    def latent_shape(self, pipe: Any, size: tuple[int, ...]) -> tuple[int, ...]:
        return (4, *latent_size(size, 8, 2))

    def encode(self, pipe: Any, prompts: Any, negatives: Any, size: Any) -> Any:
        return {}, None

    def forward(self, denoiser: Any, latents: Any, timestep: Any, condition: Any, guidance: float) -> Any:
        return latents


def pipe(**members: Any) -> Any:
    config = SimpleNamespace(sample_size=members.pop("sample_size", None))
    return SimpleNamespace(vae_scale_factor=8, transformer=SimpleNamespace(config=config), **members)


def test_the_size_where_none_is_asked_for() -> None:
    assert Plain().default_size(pipe(default_sample_size=64)) == (512, 512)
    assert Plain().default_size(pipe(sample_size=[32, 64])) == (256, 512)
    with pytest.raises(ConfigError, match=r"a NoSuchPipeline has no size of its own; write \[height, width\]"):
        Plain().default_size(pipe())


def test_sides_that_are_no_multiple() -> None:
    assert Plain().latent_shape(pipe(), (32, 64)) == (4, 4, 8)
    with pytest.raises(ConfigError, match=r"model.size = \[24, 64\]: height and width must be multiples of 16 pixels"):
        Plain().latent_shape(pipe(), (24, 64))


def test_a_class_that_diffusers_lacks(tmp_path: Any) -> None:
    with pytest.raises(
        ConfigError, match=r"Plain.pipeline = 'NoSuchPipeline': diffusers .* has no such class; install"
    ):
        Plain().load(tmp_path)


def test_the_call_of_the_pipeline_passes_what_it_is_asked() -> None:
    calls: list[dict[str, Any]] = []

    def call(**arguments: Any) -> Any:
        calls.append(arguments)
        return SimpleNamespace(images=torch.zeros(1, 16, 32, 3).numpy(), frames=torch.zeros(1, 5, 16, 32, 3).numpy())

    latents = torch.zeros(1, 4, 2, 4)
    asked = (call, [{"prompt": "a cat"}], None, latents, 3.0, 7, (16, 32))
    assert Plain().call_pipeline(*asked, guidance_scale=None, true_cfg_scale=3.0).shape == (1, 3, 16, 32)
    assert calls[0] == {
        "prompt": ["a cat"],
        "height": 16,
        "width": 32,
        "num_inference_steps": 7,
        "latents": latents,
        "output_type": "np",
        "true_cfg_scale": 3.0,
    }

    class Moving(Plain):
        video = True

    asked = (call, [{"prompt": "a cat"}], ["grey"], latents, 3.0, 7, (5, 16, 32))
    assert Moving().call_pipeline(*asked).shape == (1, 5, 3, 16, 32)
    assert (calls[1]["num_frames"], calls[1]["negative_prompt"], calls[1]["guidance_scale"]) == (5, ["grey"], 3.0)
