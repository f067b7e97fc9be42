"""DiT: a transformer on latents that is asked for a class of ImageNet."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, final

import torch
from torch import Tensor

from groupwise.config import ConfigError
from groupwise.domain.diffusion.models.family import Family, Tensors, image_size


@final
class DiT(Family):
    """`DiTPipeline`; see `groupwise.domain.diffusion.models.family.Family`.

    A prompt is a class: its number in the column `label`, or one of the pipeline's names for it in `prompt`. There is
    no negative prompt; the unconditional branch is the class that the model keeps for it.
    """

    pipeline = "DiTPipeline"
    denoiser = "transformer"
    components: tuple[str, ...] = ("transformer", "vae", "scheduler")

    def latent_shape(self, pipe: Any, size: tuple[int, int] | None) -> tuple[int, ...]:
        """Returns `[C, h, w]`; the model makes images of one size."""
        config = pipe.transformer.config
        latent_size = image_size(size, config.sample_size, _pixels_a_latent(pipe))
        if latent_size != (config.sample_size, config.sample_size):
            pixels = config.sample_size * _pixels_a_latent(pipe)
            raise ConfigError(
                f"model.size = {list(size or ())}: a DiT makes images of one size; leave it out, or write [{pixels},"
                f" {pixels}]"
            )
        return (config.in_channels, *latent_size)

    def check(self, pipe: Any, prompts: Sequence[Mapping[str, Any]]) -> None:
        """Refuses a prompt that names no class, or has a negative prompt."""
        for columns in prompts:
            _label(pipe, columns, pipe.transformer.config.num_embeds_ada_norm)
            if columns.get("negative_prompt") is not None:
                raise ConfigError(
                    "negative_prompt: a DiT is asked for a class and has no negative prompt; leave the column out"
                )

    def encode(
        self, pipe: Any, prompts: Sequence[Mapping[str, Any]], negatives: Sequence[str] | None, size: tuple[int, int]
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


def _pixels_a_latent(pipe: Any) -> int:
    return 2 ** (len(pipe.vae.config.block_out_channels) - 1)


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
