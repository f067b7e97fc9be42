"""Flux: a rectified flow on packed latents, with guidance as an input where it was distilled for it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, final

import torch
from torch import Tensor

from groupwise.domain.diffusion.pipeline_adapter import (
    PipelineAdapter,
    Prompts,
    Tensors,
    dynamic_shift,
    latent_size,
    texts,
)


@final
class Flux(PipelineAdapter):
    """`FluxPipeline`; see `groupwise.domain.diffusion.pipeline_adapter.PipelineAdapter`.

    A latent is packed: 2 x 2 places side by side are one token, `[h w / 4, 4 C]`. A model that was distilled for
    guidance (`guidance_embeds`, Flux dev) takes the domain's guidance as an input and runs once; another one (Flux
    schnell) is guided by a second run without the prompt.
    """

    pipeline = "FluxPipeline"
    denoiser = "transformer"
    components = (
        "transformer",
        "vae",
        "text_encoder",
        "tokenizer",
        "text_encoder_2",
        "tokenizer_2",
        "scheduler",
    )

    def latent_shape(self, pipe: Any, size: tuple[int, ...]) -> tuple[int, ...]:
        """Returns `[h w / 4, 4 C]`."""
        height, width = latent_size(size, pipe.vae_scale_factor, 2)
        return ((height // 2) * (width // 2), pipe.transformer.config.in_channels)

    def encode(
        self, pipe: Any, prompts: Prompts, negatives: Sequence[str] | None, size: tuple[int, ...]
    ) -> tuple[Tensors, Tensors | None]:
        """Encodes hidden states, pooled text, and the place of each image token."""
        height, width = (side // pipe.vae_scale_factor // 2 for side in size)
        rows, columns = torch.meshgrid(torch.arange(height), torch.arange(width), indexing="ij")
        places = torch.stack([torch.zeros_like(rows), rows, columns], dim=-1).reshape(1, height * width, 3)

        def read(words: Sequence[str]) -> Tensors:
            hidden, pooled, _ = pipe.encode_prompt(
                prompt=list(words), prompt_2=None, device=pipe.transformer.device, num_images_per_prompt=1
            )
            return {
                "encoder_hidden_states": hidden,
                "pooled_projections": pooled,
                "img_ids": places.to(hidden).repeat(len(words), 1, 1),
            }

        prompted = read(texts(prompts))
        if self.takes_guidance(pipe):
            return prompted, None
        return prompted, read([""] * len(prompts) if negatives is None else negatives)

    def takes_guidance(self, pipe: Any) -> bool:
        """Tests that the transformer has an embedding of the guidance."""
        return bool(pipe.transformer.config.guidance_embeds)

    def forward(
        self, denoiser: Any, latents: Tensor, timestep: Tensor, condition: Mapping[str, Tensor], guidance: float
    ) -> Tensor:
        """Computes the transformer's velocity."""
        hidden = condition["encoder_hidden_states"]
        distilled = denoiser.config.guidance_embeds
        return denoiser(
            hidden_states=latents,
            timestep=timestep.to(latents.dtype) / 1000,
            guidance=(
                torch.full((len(latents),), guidance, dtype=torch.float32, device=latents.device) if distilled else None
            ),
            pooled_projections=condition["pooled_projections"],
            encoder_hidden_states=hidden,
            # The same for every row: the transformer takes places without a batch.
            txt_ids=hidden.new_zeros(hidden.shape[1], 3),
            img_ids=condition["img_ids"][0],
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
        """Draws images; a model that was not distilled takes the guidance as `true_cfg_scale`."""
        if not self.takes_guidance(pipe):
            negatives = [""] * len(prompts) if negatives is None else negatives
            arguments = {"true_cfg_scale": guidance, "guidance_scale": None} | arguments
        return super().call_pipeline(pipe, prompts, negatives, latents, guidance, num_steps, size, **arguments)

    def shift(self, pipe: Any, latent_shape: Sequence[int]) -> float | None:
        """Computes the shift, linear in the number of image tokens."""
        return (
            dynamic_shift(pipe.scheduler, latent_shape[0])
            if pipe.scheduler.config.get("use_dynamic_shifting", False)
            else None
        )

    def unpack(self, pipe: Any, latents: Tensor, size: tuple[int, ...]) -> Tensor:
        """Unpacks `[N, h w / 4, 4 C]` to `[N, C, h, w]`."""
        height, width = (side // pipe.vae_scale_factor // 2 for side in size)
        blocks = latents.reshape(len(latents), height, width, -1, 2, 2)
        return blocks.permute(0, 3, 1, 4, 2, 5).reshape(len(latents), -1, 2 * height, 2 * width)

    def pack(self, latents: Tensor) -> Tensor:
        """Packs `[N, C, h, w]` to `[N, h w / 4, 4 C]`."""
        number, channels, height, width = latents.shape
        blocks = latents.reshape(number, channels, height // 2, 2, width // 2, 2)
        return blocks.permute(0, 2, 4, 1, 3, 5).reshape(number, height * width // 4, 4 * channels)
