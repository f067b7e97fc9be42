"""DiT: a transformer on latents that is asked for a class of ImageNet."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, final

import torch
from torch import Tensor

from groupwise.config import ConfigError
from groupwise.domain.diffusion.pipeline_adapter import PipelineAdapter, Prompts, Tensors, latent_size, pixels_a_latent


@final
class DiT(PipelineAdapter):
    """`DiTPipeline`; see `groupwise.domain.diffusion.pipeline_adapter.PipelineAdapter`.

    A prompt is a class: its number in the column `label`, or one of the pipeline's names for it in `prompt`. There is
    no negative prompt; the unconditional branch is the class that the model keeps for it.
    """

    pipeline = "DiTPipeline"
    denoiser = "transformer"
    components = ("transformer", "vae", "scheduler")

    def latent_shape(self, pipe: Any, size: tuple[int, ...]) -> tuple[int, ...]:
        """Returns `[C, h, w]`; the model makes images of one size."""
        config, factor = pipe.transformer.config, pixels_a_latent(pipe)
        if latent_size(size, factor) != (config.sample_size, config.sample_size):
            pixels = config.sample_size * factor
            raise ConfigError(
                f"model.size = {list(size)}: a DiT makes images of one size; leave it out, or write [{pixels},"
                f" {pixels}]"
            )
        return (config.in_channels, config.sample_size, config.sample_size)

    def check(self, pipe: Any, prompts: Prompts) -> None:
        """Refuses a prompt that names no class, or has a negative prompt."""
        for columns in prompts:
            _label(pipe, columns, pipe.transformer.config.num_embeds_ada_norm)
            if columns.get("negative_prompt") is not None:
                raise ConfigError(
                    "negative_prompt: a DiT is asked for a class and has no negative prompt; leave the column out"
                )

    def encode(
        self, pipe: Any, prompts: Prompts, negatives: Sequence[str] | None, size: tuple[int, ...]
    ) -> tuple[Tensors, Tensors | None]:
        """Encodes class numbers."""
        num_classes = pipe.transformer.config.num_embeds_ada_norm
        labels = torch.tensor(
            [_label(pipe, columns, num_classes) for columns in prompts], device=pipe.transformer.device
        )
        return {"class_labels": labels}, {"class_labels": torch.full_like(labels, num_classes)}

    def forward(
        self, denoiser: Any, latents: Tensor, timestep: Tensor, condition: Mapping[str, Tensor], guidance: float
    ) -> Tensor:
        """Computes the transformer's prediction without its learned variance; `guidance` is not used."""
        prediction = denoiser(latents, timestep=timestep, class_labels=condition["class_labels"], return_dict=False)[0]
        return prediction[:, : latents.shape[1]]

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
        """Draws images of the prompts' classes. The pipeline takes no latents: they take the place of its draw."""
        from diffusers.pipelines.dit import pipeline_dit

        library: Any = pipeline_dit
        labels = [_label(pipe, columns, pipe.transformer.config.num_embeds_ada_norm) for columns in prompts]
        draw, library.randn_tensor = library.randn_tensor, lambda *_, **__: latents
        try:
            images = pipe(
                labels, guidance_scale=guidance, num_inference_steps=num_steps, output_type="np", **arguments
            ).images
        finally:
            library.randn_tensor = draw
        return torch.from_numpy(images).movedim(-1, -3)


def _label(pipe: Any, columns: Mapping[str, Any], num_classes: int) -> int:
    label, names = columns.get("label"), getattr(pipe, "labels", None) or {}
    if isinstance(label, int) and 0 <= label < num_classes:
        return label
    if label is None and columns.get("prompt") in names:
        return int(names[columns["prompt"]])
    names_hint = f", or in 'prompt' one of the pipeline's names ({', '.join(list(names)[:3])}, ...)" if names else ""
    raise ConfigError(
        f"prompt {dict(columns)}: this pipeline draws classes; write a number from 0 to {num_classes - 1} in the column"
        f" 'label'{names_hint}"
    )
