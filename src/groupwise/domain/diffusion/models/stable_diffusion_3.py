"""Stable Diffusion 3: a rectified flow in latents, with a transformer that reads up to three text encoders."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, final

from torch import Tensor

from groupwise.domain.diffusion.models.family import Tensors, dynamic_shift, image_size, texts


@final
class StableDiffusion3:
    """`StableDiffusion3Pipeline`; see `groupwise.domain.diffusion.models.family.Family`. Without its third text encoder
    the pipeline reads zeros for it.
    """

    pipeline = "StableDiffusion3Pipeline"
    denoiser = "transformer"
    parts: tuple[str, ...] = (
        "transformer",
        "vae",
        "text_encoder",
        "tokenizer",
        "text_encoder_2",
        "tokenizer_2",
        "scheduler",
    )
    optional: tuple[str, ...] = ("text_encoder_3", "tokenizer_3")

    def latent_shape(self, pipe: Any, size: tuple[int, int] | None) -> tuple[int, ...]:
        """`[C, h, w]`."""
        config = pipe.transformer.config
        return (config.in_channels, *image_size(size, config.sample_size, pipe.vae_scale_factor, config.patch_size))

    def check(self, pipe: Any, prompts: Sequence[Mapping[str, Any]]) -> None:
        """Refuses a prompt that is no text."""
        texts(prompts)

    def encode(
        self, pipe: Any, prompts: Sequence[Mapping[str, Any]], negatives: Sequence[str] | None, size: tuple[int, int]
    ) -> tuple[Tensors, Tensors | None]:
        """Hidden states and pooled text."""
        words = texts(prompts)
        asked, other, pooled, other_pooled = pipe.encode_prompt(
            prompt=words,
            prompt_2=words,
            prompt_3=words,
            negative_prompt=None if negatives is None else list(negatives),
            device=pipe.transformer.device,
            num_images_per_prompt=1,
            do_classifier_free_guidance=True,
        )
        given = {"encoder_hidden_states": asked, "pooled_projections": pooled}
        return given, {"encoder_hidden_states": other, "pooled_projections": other_pooled}

    def takes_guidance(self, pipe: Any) -> bool:
        """Never."""
        return False

    def forward(
        self, denoiser: Any, latents: Tensor, timestep: Tensor, given: Mapping[str, Tensor], guidance: float
    ) -> Tensor:
        """The transformer's velocity."""
        return denoiser(
            hidden_states=latents,
            timestep=timestep,
            encoder_hidden_states=given["encoder_hidden_states"],
            pooled_projections=given["pooled_projections"],
            return_dict=False,
        )[0]

    def shift(self, pipe: Any, latent_shape: Sequence[int]) -> float | None:
        """Of SD 3.5's schedulers, where they ask for it."""
        if not pipe.scheduler.config.get("use_dynamic_shifting", False):
            return None
        patch = pipe.transformer.config.patch_size
        return dynamic_shift(pipe.scheduler, (latent_shape[1] // patch) * (latent_shape[2] // patch), 1.16)

    def unpack(self, pipe: Any, latents: Tensor, size: tuple[int, int]) -> Tensor:
        """As they are."""
        return latents

    def pack(self, latents: Tensor) -> Tensor:
        """As they are."""
        return latents
