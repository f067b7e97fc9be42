"""Stable Diffusion 3: a rectified flow in latents, with a transformer that reads up to three text encoders."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, final

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
class StableDiffusion3(PipelineAdapter):
    """`StableDiffusion3Pipeline`; see `groupwise.domain.diffusion.pipeline_adapter.PipelineAdapter`. Without its third
    text encoder the pipeline reads zeros for it.
    """

    pipeline = "StableDiffusion3Pipeline"
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
    optional = ("text_encoder_3", "tokenizer_3")

    def latent_shape(self, pipe: Any, size: tuple[int, ...]) -> tuple[int, ...]:
        """Returns `[C, h, w]`."""
        config = pipe.transformer.config
        return (config.in_channels, *latent_size(size, pipe.vae_scale_factor, config.patch_size))

    def encode(
        self, pipe: Any, prompts: Prompts, negatives: Sequence[str] | None, size: tuple[int, ...]
    ) -> tuple[Tensors, Tensors | None]:
        """Encodes hidden states and pooled text."""
        words = texts(prompts)
        hidden, negative_hidden, pooled, negative_pooled = pipe.encode_prompt(
            prompt=words,
            prompt_2=words,
            prompt_3=words,
            negative_prompt=None if negatives is None else list(negatives),
            device=pipe.transformer.device,
            num_images_per_prompt=1,
            do_classifier_free_guidance=True,
        )
        condition = {"encoder_hidden_states": hidden, "pooled_projections": pooled}
        return condition, {"encoder_hidden_states": negative_hidden, "pooled_projections": negative_pooled}

    def forward(
        self, denoiser: Any, latents: Tensor, timestep: Tensor, condition: Mapping[str, Tensor], guidance: float
    ) -> Tensor:
        """Computes the transformer's velocity."""
        return denoiser(
            hidden_states=latents,
            timestep=timestep,
            encoder_hidden_states=condition["encoder_hidden_states"],
            pooled_projections=condition["pooled_projections"],
            return_dict=False,
        )[0]

    def shift(self, pipe: Any, latent_shape: Sequence[int]) -> float | None:
        """Computes the shift of SD 3.5's schedulers, where their settings ask for it."""
        if not pipe.scheduler.config.get("use_dynamic_shifting", False):
            return None
        patch = pipe.transformer.config.patch_size
        return dynamic_shift(pipe.scheduler, (latent_shape[1] // patch) * (latent_shape[2] // patch), 1.16)
