"""Qwen-Image: a rectified flow on packed latents, which reads the states of a language model."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, final

import torch
from torch import Tensor
from torch.nn.functional import pad

from groupwise.config import ConfigError
from groupwise.domain.diffusion.pipeline_adapter import (
    PipelineAdapter,
    Prompts,
    Tensors,
    dynamic_shift,
    latent_size,
    texts,
)

_MOST_TOKENS = 512
"""Tokens of a prompt that the pipeline reads unless another number is asked for."""


@final
class QwenImage(PipelineAdapter):
    """`QwenImagePipeline`; see `groupwise.domain.diffusion.pipeline_adapter.PipelineAdapter`.

    A latent is packed: 2 x 2 places side by side are one token, `[h w / 4, 4 C]`. The guided prediction of each token
    is scaled to the length of the prompted one, as the pipeline does it.
    """

    pipeline = "QwenImagePipeline"
    components = ("transformer", "vae", "text_encoder", "tokenizer", "scheduler")

    def latent_shape(self, pipe: Any, size: tuple[int, ...]) -> tuple[int, ...]:
        """Returns `[h w / 4, 4 C]`.

        Raises:
            ConfigError: a transformer that was distilled for guidance, or a size it cannot make.
        """
        if pipe.transformer.config.guidance_embeds:
            raise ConfigError(
                "model.path: the transformer was distilled for guidance (guidance_embeds), which is not supported here;"
                " take the model it was distilled from"
            )
        height, width = latent_size(size, pipe.vae_scale_factor, 2)
        return (height * width // 4, pipe.transformer.config.in_channels)

    def encode(
        self, pipe: Any, prompts: Prompts, negatives: Sequence[str] | None, size: tuple[int, ...]
    ) -> tuple[Tensors, Tensors | None]:
        """Encodes hidden states, which of them are text, and the image's height and width in tokens."""
        places = torch.tensor([[side // pipe.vae_scale_factor // 2 for side in size]], device=pipe.transformer.device)

        def read(words: Sequence[str]) -> Tensors:
            hidden, mask = pipe.encode_prompt(
                list(words), device=pipe.transformer.device, max_sequence_length=_MOST_TOKENS
            )
            mask = torch.ones(hidden.shape[:2], device=hidden.device) if mask is None else mask
            missing = _MOST_TOKENS - hidden.shape[1]
            return {
                "encoder_hidden_states": pad(hidden, (0, 0, 0, missing)),
                "encoder_hidden_states_mask": pad(mask, (0, missing)).bool(),
                "places": places.repeat(len(words), 1),
            }

        return read(texts(prompts)), read([""] * len(prompts) if negatives is None else negatives)

    def forward(
        self, denoiser: Any, latents: Tensor, timestep: Tensor, condition: Mapping[str, Tensor], guidance: float
    ) -> Tensor:
        """Computes the transformer's velocity."""
        height, width = condition["places"][0].tolist()
        return denoiser(
            hidden_states=latents,
            timestep=timestep.to(latents.dtype) / 1000,
            encoder_hidden_states=condition["encoder_hidden_states"],
            encoder_hidden_states_mask=condition["encoder_hidden_states_mask"],
            img_shapes=[[(1, height, width)]] * len(latents),
            return_dict=False,
        )[0]

    def guided(self, unconditional: Tensor, prompted: Tensor, guidance: float) -> Tensor:
        """Combines both predictions; each token's is as long as the prompted one."""
        combined = super().guided(unconditional, prompted, guidance)
        return combined * (prompted.norm(dim=-1, keepdim=True) / combined.norm(dim=-1, keepdim=True))

    def shift(self, pipe: Any, latent_shape: Sequence[int]) -> float | None:
        """Computes the shift, linear in the number of image tokens, where the scheduler asks for one."""
        if not pipe.scheduler.config.get("use_dynamic_shifting", False):
            return None
        return dynamic_shift(pipe.scheduler, latent_shape[0])

    def unpack(self, pipe: Any, latents: Tensor, size: tuple[int, ...]) -> Tensor:
        """Unpacks `[N, h w / 4, 4 C]` to `[N, C, 1, h, w]`, videos of one frame."""
        height, width = (side // pipe.vae_scale_factor // 2 for side in size)
        blocks = latents.reshape(len(latents), height, width, -1, 2, 2)
        return blocks.permute(0, 3, 1, 4, 2, 5).reshape(len(latents), -1, 1, 2 * height, 2 * width)

    def pack(self, latents: Tensor) -> Tensor:
        """Packs `[N, C, 1, h, w]` to `[N, h w / 4, 4 C]`."""
        number, channels, _, height, width = latents.shape
        blocks = latents.reshape(number, channels, height // 2, 2, width // 2, 2)
        return blocks.permute(0, 2, 4, 1, 3, 5).reshape(number, height * width // 4, 4 * channels)

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
        """Draws images; the pipeline guides only where it has negative prompts."""
        negatives = [""] * len(prompts) if negatives is None else negatives
        arguments = {"true_cfg_scale": guidance, "guidance_scale": None} | arguments
        return super().call_pipeline(pipe, prompts, negatives, latents, guidance, num_steps, size, **arguments)
