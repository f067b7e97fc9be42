"""InstructPix2Pix: a Stable Diffusion whose UNet sees an image beside the latents, and changes it as it is told."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, final

import torch
from torch import Tensor

from groupwise.domain.diffusion.models.stable_diffusion import unet_latent_shape
from groupwise.domain.diffusion.pipeline_adapter import (
    INSTRUCTION,
    PipelineAdapter,
    Prompts,
    Tensors,
    images,
    texts,
)


@final
class InstructPix2Pix(PipelineAdapter):
    """`StableDiffusionInstructPix2PixPipeline`; see `groupwise.domain.diffusion.pipeline_adapter.PipelineAdapter`. The
    image's latents, which are not scaled, stand behind the latents' own channels.
    """

    pipeline = "StableDiffusionInstructPix2PixPipeline"
    denoiser = "unet"
    components = ("unet", "vae", "text_encoder", "tokenizer", "scheduler")
    takes_image = True

    def latent_shape(self, pipe: Any, size: tuple[int, ...]) -> tuple[int, ...]:
        """Returns `[C, h, w]`."""
        return unet_latent_shape(pipe, size, num_shown=pipe.vae.config.latent_channels)

    def encode(
        self, pipe: Any, prompts: Prompts, negatives: Sequence[str] | None, size: tuple[int, ...]
    ) -> tuple[Tensors, Tensors | None]:
        """Encodes hidden states of the text encoder, and the image, which a negative prompt has too."""
        negative = None if negatives is None else list(negatives)
        hidden = pipe._encode_prompt(texts(prompts, INSTRUCTION), pipe.unet.device, 1, True, negative)
        # Of the two negative ones, the second is for the part without an image.
        prompted, unprompted, _ = hidden.chunk(3)
        shown = pipe.prepare_image_latents(
            images(prompts) * 2 - 1, len(prompts), 1, pipe.vae.dtype, pipe.vae.device, False
        )
        return (
            {"encoder_hidden_states": prompted, "image": shown},
            {"encoder_hidden_states": unprompted, "image": shown},
        )

    def without_image(self, condition: Mapping[str, Tensor]) -> Tensors:
        """Returns the condition with an image of zeros."""
        return {**condition, "image": torch.zeros_like(condition["image"])}

    def forward(
        self, denoiser: Any, latents: Tensor, timestep: Tensor, condition: Mapping[str, Tensor], guidance: float
    ) -> Tensor:
        """Computes the UNet's prediction."""
        return denoiser(
            torch.cat([latents, condition["image"].to(latents.dtype)], 1),
            timestep,
            encoder_hidden_states=condition["encoder_hidden_states"],
            return_dict=False,
        )[0]

    def call_pipeline(
        self,
        pipe: Any,
        prompts: Prompts,
        negatives: Sequence[str] | None,
        latents: Tensor,
        guidance: float,
        num_steps: int,
        size: tuple[int, ...],
        **arguments: Any,
    ) -> Tensor:
        """Draws images; the pipeline reads the size off the image."""
        arguments = {"height": None, "width": None} | arguments
        return super().call_pipeline(pipe, prompts, negatives, latents, guidance, num_steps, size, **arguments)
