"""Stable Diffusion 1.x and 2.x: a UNet that reads one text encoder."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, final

from torch import Tensor

from groupwise.config import ConfigError
from groupwise.domain.diffusion.models.family import Tensors, image_size, texts


@final
class StableDiffusion:
    """`StableDiffusionPipeline`; see `groupwise.domain.diffusion.models.family.Family`."""

    pipeline = "StableDiffusionPipeline"
    denoiser = "unet"
    parts: tuple[str, ...] = ("unet", "vae", "text_encoder", "tokenizer", "scheduler")
    optional: tuple[str, ...] = ()

    def latent_shape(self, pipe: Any, size: tuple[int, int] | None) -> tuple[int, ...]:
        """`[C, h, w]`."""
        return unet_latent_shape(pipe, size)

    def check(self, pipe: Any, prompts: Sequence[Mapping[str, Any]]) -> None:
        """Refuses a prompt that is no text."""
        texts(prompts)

    def encode(
        self, pipe: Any, prompts: Sequence[Mapping[str, Any]], negatives: Sequence[str] | None, size: tuple[int, int]
    ) -> tuple[Tensors, Tensors | None]:
        """Hidden states of the text encoder."""
        negative = None if negatives is None else list(negatives)
        asked, other = pipe.encode_prompt(texts(prompts), pipe.unet.device, 1, True, negative)
        return {"encoder_hidden_states": asked}, {"encoder_hidden_states": other}

    def takes_guidance(self, pipe: Any) -> bool:
        """Never: distilled ones are refused."""
        return False

    def forward(
        self, denoiser: Any, latents: Tensor, timestep: Tensor, given: Mapping[str, Tensor], guidance: float
    ) -> Tensor:
        """The UNet's prediction."""
        return denoiser(latents, timestep, encoder_hidden_states=given["encoder_hidden_states"], return_dict=False)[0]

    def shift(self, pipe: Any, latent_shape: Sequence[int]) -> float | None:
        """None."""
        return None

    def unpack(self, pipe: Any, latents: Tensor, size: tuple[int, int]) -> Tensor:
        """As they are."""
        return latents

    def pack(self, latents: Tensor) -> Tensor:
        """As they are."""
        return latents


def unet_latent_shape(pipe: Any, size: tuple[int, int] | None) -> tuple[int, ...]:
    """`[C, h, w]` of a pipeline with a conditional UNet.

    Raises:
        ConfigError: a UNet for another task (inpainting, distilled guidance), or a size it cannot make.
    """
    config = pipe.unet.config
    if config.in_channels != pipe.vae.config.latent_channels:
        raise ConfigError(
            f"model.path: the UNet takes {config.in_channels} channels and the autoencoder makes"
            f" {pipe.vae.config.latent_channels}; give a model that makes images from texts alone"
        )
    if config.time_cond_proj_dim is not None:
        raise ConfigError(
            "model.path: the UNet was distilled for guidance (time_cond_proj_dim), which is not supported; take the"
            " model it was distilled from"
        )
    return (config.in_channels, *image_size(size, config.sample_size, pipe.vae_scale_factor))
