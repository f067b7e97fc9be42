"""The interface of a diffusion model: encode prompts, predict, decode, save. One adapter a family of diffusers models
implements it; the domain never sees a class.

An adapter is made by `open_denoiser` in `models/`: `models/bare.py` for a denoiser with a scheduler alone (a class
label, or nothing, as its prompt), `models/<family>.py` for pipelines with text encoders and an autoencoder. What an
adapter must get right:

- `predict` returns at least fp32, whatever the weights' dtype, with classifier-free guidance inside (one doubled batch,
  the unconditional half first) and no randomness (dropout and label dropout off, also while training).
- `latents` are what a transition acts on, in the dtype of `latent_dtype` (fp32, or fp64 for fp64 weights); an adapter
  casts on the way in and out.
- `latent_shape` may be any shape, a packed one too (Flux): the domain only draws normal noise of it and adds.
- `schedule` reads the noise levels from the model's own scheduler (`noise_schedule.read_schedule`); the scheduler's
  `step` is never called.
- Text encoders pad to their full length, so that a prompt's condition does not depend on what it is encoded with.
- A model distilled for guidance has an attribute `distilled = True` and takes `guidance` as an input; any other without
  `unconditional` refuses guidance.
- `save` writes the folder format of diffusers, from which `from_pretrained` and `kind = "pretrained"` load.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol, Self, final

import torch
from torch import Tensor, nn

from groupwise_images.diffusion.transition import Parametrisation, Schedule


@final
@dataclass(frozen=True)
class Condition:
    """Encoded prompts, one row each.

    Args:
        tensors: name -> `[P, ...]`, what the denoiser is given beside latents and time.
        unconditional: the same names -> `[P, ...]` for the empty (or negative) prompt; None where the model has no
            unconditional branch.

    Example:
        >>> Condition({"label": torch.tensor([3, 5])}).select(torch.tensor([1, 1, 0])).tensors["label"].tolist()
        [5, 5, 3]
    """

    tensors: Mapping[str, Tensor]
    unconditional: Mapping[str, Tensor] | None = None

    def select(self, rows: Tensor) -> Condition:
        """Selects prompts in the order of `rows`, repeated where `rows` repeats."""
        unconditional = (
            None if self.unconditional is None else {name: value[rows] for name, value in self.unconditional.items()}
        )
        return Condition({name: value[rows] for name, value in self.tensors.items()}, unconditional)


class Denoiser(Protocol):
    """A model that can be denoised with.

    `module` is what is trained; `latent_shape` is without the batch; `latent_dtype` is at least fp32; `video` says
    whether it makes videos; `image_shape` is `(C, H, W)` of what is made, and `condition_shape` that of the image which
    a prompt must have in its column `degraded`, None where prompts have none; `guided_rows` is how many rows of the
    model a guided prediction takes.
    """

    module: nn.Module
    latent_shape: tuple[int, ...]
    latent_dtype: torch.dtype
    parametrisation: Parametrisation
    video: bool
    image_shape: tuple[int, ...]
    condition_shape: tuple[int, ...] | None
    guided_rows: int

    @property
    def device(self) -> torch.device:
        """The device that computes."""
        ...

    @property
    def encoders(self) -> str:
        """A hash of the text encoders by content, under which encoded prompts are cached; empty where encoding costs
        nothing.
        """
        ...

    @property
    def precision(self) -> str:
        """A sentence for people on the types that frozen parts compute in; empty where there are none."""
        ...

    def check(self, prompts: Sequence[Mapping[str, Any]]) -> None:
        """Refuses prompts that `encode` would refuse, without encoding them.

        Raises:
            ConfigError: names the column and the value.
        """
        ...

    def encode(self, prompts: Sequence[Mapping[str, Any]]) -> Condition:
        """Encodes prompts (their columns, such as `prompt`, `label`, `negative_prompt`) as conditions, without
        gradient.
        """
        ...

    def predict(self, latents: Tensor, timestep: Tensor, condition: Condition, guidance: float) -> Tensor:
        """Predicts `[N, *latent_shape]` in `latent_dtype`, with gradient where it is on.

        Args:
            latents: `[N, *latent_shape]`, `latent_dtype`.
            timestep: `[N]`, as the scheduler numbers them (`Schedule.timestep`), float.
            condition: `N` rows.
            guidance: `g` of `u + g (c - u)`, with `c` and `u` the predictions with and without the prompt; 1 runs the
                model once. Models distilled for guidance (Flux) take it as an input.
        """
        ...

    def schedule(self, num_steps: int) -> Schedule:
        """Returns the noise levels of `num_steps` transitions, from the model's scheduler."""
        ...

    def noised(self, time: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Returns `(timestep, signal, noise)` for supervised training, each `[N]`, at times `[N]` in (0, 1) of the
        training schedule.
        """
        ...

    def to_latents(self, images: Tensor) -> Tensor:
        """Encodes images `[N, C, H, W]` in [0, 1] as latents, without gradient."""
        ...

    def decode(self, latents: Tensor) -> Tensor:
        """Decodes latents as images `[N, C, H, W]` in [0, 1], fp32, C 1 or 3, without gradient; of videos `[N, F, 3, H,
        W]`.
        """
        ...

    def save(self, folder: Path) -> None:
        """Writes the model in diffusers' folder format."""
        ...

    def with_module(self, module: nn.Module) -> Self:
        """Returns this denoiser with a copy of its module that is computed with in its place."""
        ...
