"""Wan: a rectified flow that makes videos."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, final

from torch import Tensor

from groupwise.config import ConfigError
from groupwise.domain.diffusion.pipeline_adapter import PipelineAdapter, Prompts, Tensors, latent_size, texts

_MOST_TOKENS = 512
"""Tokens of a prompt that the pipeline reads unless another number is asked for."""


@final
class Wan(PipelineAdapter):
    """`WanPipeline`, videos from texts; see `groupwise.domain.diffusion.pipeline_adapter.PipelineAdapter`.

    A latent is `[C, f, h, w]`: the first frame, and then one latent for every four frames.
    """

    pipeline = "WanPipeline"
    components = ("transformer", "vae", "text_encoder", "tokenizer", "scheduler")
    video = True

    def default_size(self, pipe: Any) -> tuple[int, ...]:
        """Returns the size that the pipeline's call has by default."""
        return (81, 480, 832)

    def latent_shape(self, pipe: Any, size: tuple[int, ...]) -> tuple[int, ...]:
        """Returns `[C, f, h, w]`.

        Raises:
            ConfigError: a model of two denoisers or of times for each place, or a size it cannot make.
        """
        if pipe.config.boundary_ratio is not None or pipe.config.expand_timesteps:
            setting = "expand_timesteps" if pipe.config.expand_timesteps else "boundary_ratio"
            raise ConfigError(
                f"model.path: this WanPipeline has {setting} in its model_index.json (Wan 2.2), which is not supported;"
                " take a model of one denoiser and one time (Wan 2.1)"
            )
        config, frames = pipe.transformer.config, pipe.vae_scale_factor_temporal
        if (size[0] - 1) % frames:
            raise ConfigError(
                f"model.size = {list(size)}: the number of frames must be 1 more than a multiple of {frames}"
            )
        height, width = latent_size(size, pipe.vae_scale_factor_spatial, config.patch_size[-1])
        return (config.in_channels, (size[0] - 1) // frames + 1, height, width)

    def encode(
        self, pipe: Any, prompts: Prompts, negatives: Sequence[str] | None, size: tuple[int, ...]
    ) -> tuple[Tensors, Tensors | None]:
        """Encodes hidden states of the text encoder."""
        hidden, negative_hidden = pipe.encode_prompt(
            texts(prompts),
            [""] * len(prompts) if negatives is None else list(negatives),
            max_sequence_length=_MOST_TOKENS,
            device=pipe.transformer.device,
        )
        dtype = pipe.transformer.dtype
        return {"encoder_hidden_states": hidden.to(dtype)}, {"encoder_hidden_states": negative_hidden.to(dtype)}

    def forward(
        self, denoiser: Any, latents: Tensor, timestep: Tensor, condition: Mapping[str, Tensor], guidance: float
    ) -> Tensor:
        """Computes the transformer's velocity."""
        return denoiser(
            hidden_states=latents,
            timestep=timestep,
            encoder_hidden_states=condition["encoder_hidden_states"],
            return_dict=False,
        )[0]
