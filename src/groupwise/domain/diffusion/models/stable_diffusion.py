"""Stable Diffusion 1.x and 2.x: a UNet that reads one text encoder."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, final

from torch import Tensor

from groupwise.config import ConfigError
from groupwise.domain.diffusion.pipeline_adapter import PipelineAdapter, Prompts, Tensors, latent_size, texts


@final
class StableDiffusion(PipelineAdapter):
    """`StableDiffusionPipeline`; see `groupwise.domain.diffusion.pipeline_adapter.PipelineAdapter`."""

    pipeline = "StableDiffusionPipeline"
    denoiser = "unet"
    components = ("unet", "vae", "text_encoder", "tokenizer", "scheduler")

    def latent_shape(self, pipe: Any, size: tuple[int, ...]) -> tuple[int, ...]:
        """Returns `[C, h, w]`."""
        return unet_latent_shape(pipe, size)

    def encode(
        self, pipe: Any, prompts: Prompts, negatives: Sequence[str] | None, size: tuple[int, ...]
    ) -> tuple[Tensors, Tensors | None]:
        """Encodes hidden states of the text encoder."""
        negative = None if negatives is None else list(negatives)
        hidden, negative_hidden = pipe.encode_prompt(texts(prompts), pipe.unet.device, 1, True, negative)
        return {"encoder_hidden_states": hidden}, {"encoder_hidden_states": negative_hidden}

    def forward(
        self, denoiser: Any, latents: Tensor, timestep: Tensor, condition: Mapping[str, Tensor], guidance: float
    ) -> Tensor:
        """Computes the UNet's prediction."""
        return denoiser(latents, timestep, encoder_hidden_states=condition["encoder_hidden_states"], return_dict=False)[
            0
        ]


def unet_latent_shape(pipe: Any, size: tuple[int, ...], num_shown: int = 0) -> tuple[int, ...]:
    """Returns `[C, h, w]` of a pipeline with a conditional UNet.

    Args:
        pipe: the loaded pipeline.
        size: height and width in pixels.
        num_shown: channels of an image that the UNet sees behind the latents'.

    Raises:
        ConfigError: a UNet for another task (inpainting, distilled guidance), or a size it cannot make.
    """
    config, num_drawn = pipe.unet.config, pipe.vae.config.latent_channels
    if config.in_channels != num_drawn + num_shown:
        raise ConfigError(
            f"model.path: the UNet takes {config.in_channels} channels and the autoencoder makes {num_drawn}; give a"
            f" model {'that is shown an image too' if num_shown else 'that makes images from texts alone'}, whose UNet"
            f" takes {num_drawn + num_shown}"
        )
    if config.time_cond_proj_dim is not None:
        raise ConfigError(
            "model.path: the UNet was distilled for guidance (time_cond_proj_dim), which is not supported; take the"
            " model it was distilled from"
        )
    return (num_drawn, *latent_size(size, pipe.vae_scale_factor))
