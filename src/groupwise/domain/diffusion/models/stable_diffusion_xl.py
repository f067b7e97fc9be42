"""Stable Diffusion XL: a UNet that reads two text encoders, a pooled text and the image's size."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, final

import torch
from torch import Tensor

from groupwise.domain.diffusion.models.stable_diffusion import unet_latent_shape
from groupwise.domain.diffusion.pipeline_adapter import PipelineAdapter, Prompts, Tensors, texts


@final
class StableDiffusionXL(PipelineAdapter):
    """`StableDiffusionXLPipeline`; see `groupwise.domain.diffusion.pipeline_adapter.PipelineAdapter`. Images count as
    uncropped and of the size that is made.
    """

    pipeline = "StableDiffusionXLPipeline"
    denoiser = "unet"
    components = ("unet", "vae", "text_encoder_2", "tokenizer_2", "scheduler")

    def latent_shape(self, pipe: Any, size: tuple[int, ...]) -> tuple[int, ...]:
        """Returns `[C, h, w]`."""
        return unet_latent_shape(pipe, size)

    def encode(
        self, pipe: Any, prompts: Prompts, negatives: Sequence[str] | None, size: tuple[int, ...]
    ) -> tuple[Tensors, Tensors | None]:
        """Encodes hidden states and pooled text; the empty negative prompt is all zeros where the pipeline says so
        (`force_zeros_for_empty_prompt`).
        """
        negative = None if negatives is None else list(negatives)
        hidden, negative_hidden, pooled, negative_pooled = pipe.encode_prompt(
            prompt=texts(prompts),
            device=pipe.unet.device,
            num_images_per_prompt=1,
            do_classifier_free_guidance=True,
            negative_prompt=negative,
        )
        # Original size, crop and target size.
        ids = torch.tensor([[*size, 0, 0, *size]], dtype=hidden.dtype, device=hidden.device).repeat(len(prompts), 1)
        condition = {"encoder_hidden_states": hidden, "text_embeds": pooled, "time_ids": ids}
        return condition, {"encoder_hidden_states": negative_hidden, "text_embeds": negative_pooled, "time_ids": ids}

    def forward(
        self, denoiser: Any, latents: Tensor, timestep: Tensor, condition: Mapping[str, Tensor], guidance: float
    ) -> Tensor:
        """Computes the UNet's prediction."""
        added = {"text_embeds": condition["text_embeds"], "time_ids": condition["time_ids"]}
        return denoiser(
            latents,
            timestep,
            encoder_hidden_states=condition["encoder_hidden_states"],
            added_cond_kwargs=added,
            return_dict=False,
        )[0]
