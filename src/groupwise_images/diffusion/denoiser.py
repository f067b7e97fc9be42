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

import copy
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, Self, final

import torch
from torch import Tensor, nn

from groupwise.transfer import moved
from groupwise_images.diffusion.transition import (
    Parametrisation,
    Schedule,
    levels_at,
    read_parametrisation,
    read_schedule,
)

Spacing = Literal["uniform", "scheduler"]


@final
@dataclass(frozen=True)
class Condition:
    """Encoded prompts, one row each.

    Args:
        tensors: name -> `[P, ...]`, inputs of the denoiser in addition to latents and time.
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


class Denoiser(ABC):
    """A model that can be denoised with.

    Args:
        module: what is trained.
        scheduler: the scheduler of diffusers; its noise levels are read.
        spacing: the spacing of a flow's noise levels.
        shift: `mu` of a scheduler whose levels depend on the image's size.

    Attributes:
        latent_shape: without the batch.
        latent_dtype: at least fp32.
        video: whether it makes videos.
        image_shape: `(C, H, W)` of what is made.
        condition_shape: that of the image which a prompt must have in its column `degraded`; None where prompts have
            none.
        guided_rows: rows of the model that a guided prediction takes.
        distilled: whether guidance is an input of the model, which then has no unconditional branch.
        precision: a sentence for people on the types that frozen parts compute in; empty where there are none.

    Raises:
        ConfigError: a scheduler whose noise levels cannot be read.
    """

    latent_shape: tuple[int, ...]
    latent_dtype: torch.dtype
    image_shape: tuple[int, ...]
    condition_shape: tuple[int, ...] | None
    video: bool = False
    guided_rows: int = 2
    distilled: bool = False
    precision: str = ""

    def __init__(self, module: nn.Module, scheduler: Any, spacing: Spacing, shift: float | None = None) -> None:
        self.module, self.scheduler = module, scheduler
        self._spacing: Spacing = spacing
        self._shift = shift
        self.schedule(2)
        self.parametrisation: Parametrisation = read_parametrisation(scheduler)

    @property
    def device(self) -> torch.device:
        """The device that computes."""
        return next(self.module.parameters()).device

    @abstractmethod
    def check(self, prompts: Sequence[Mapping[str, Any]]) -> None:
        """Refuses prompts that `encode` would refuse, without encoding them.

        Raises:
            ConfigError: names the column and the value.
        """

    @abstractmethod
    def encode(self, prompts: Sequence[Mapping[str, Any]]) -> Condition:
        """Encodes prompts (their columns, such as `prompt`, `label`, `negative_prompt`) as conditions, without
        gradient.
        """

    def num_cut(self, prompts: Sequence[Mapping[str, Any]]) -> int:
        """Counts prompts that are longer than any of the text encoders reads; none where words are no condition."""
        return 0

    def predict(self, latents: Tensor, timestep: Tensor, condition: Condition, guidance: float) -> Tensor:
        """Predicts `[N, *latent_shape]` in `latent_dtype`, with gradient where it is on.

        Args:
            latents: `[N, *latent_shape]`, `latent_dtype`.
            timestep: `[N]`, as the scheduler numbers them (`Schedule.timestep`), float.
            condition: `N` rows.
            guidance: `g` of `u + g (c - u)`, with `c` and `u` the predictions with and without the prompt; 1 runs the
                model once. Models distilled for guidance (Flux) take it as an input.
        """
        tensors, unconditional = condition.tensors, condition.unconditional
        if guidance == 1 or unconditional is None:
            return self._forward(latents, timestep, tensors, guidance)
        parts = self._branches(tensors, unconditional)
        conditions = {name: torch.cat([part[name] for part in parts]) for name in tensors}
        latents, timestep = (torch.cat([value] * len(parts)) for value in (latents, timestep))
        return self._guided(self._forward(latents, timestep, conditions, guidance).chunk(len(parts)), guidance)

    def schedule(self, num_steps: int) -> Schedule:
        """Returns the noise levels of `num_steps` transitions, from the model's scheduler, where the latents are."""
        return moved(read_schedule(self.scheduler, num_steps, spacing=self._spacing, shift=self._shift), self.device)

    def noised(self, time: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Returns `(timestep, signal, noise)` for supervised training, each `[N]`, at times `[N]` in (0, 1) of the
        training schedule.
        """
        return levels_at(self.scheduler, time)

    @abstractmethod
    def to_latents(self, images: Tensor) -> Tensor:
        """Encodes images `[N, C, H, W]` in [0, 1] as latents, without gradient."""

    @abstractmethod
    def decode(self, latents: Tensor) -> Tensor:
        """Decodes latents as images `[N, C, H, W]` in [0, 1], fp32, C 1 or 3, without gradient; of videos `[N, F, 3, H,
        W]`.
        """

    @abstractmethod
    def save(self, folder: Path) -> None:
        """Writes the model in diffusers' folder format."""

    def with_module(self, module: nn.Module) -> Self:
        """Returns this denoiser with a copy of its module, which does the computing."""
        other = copy.copy(self)
        other.module = module
        return other

    @abstractmethod
    def _forward(self, latents: Tensor, timestep: Tensor, tensors: Mapping[str, Tensor], guidance: float) -> Tensor:
        """Runs the model once; see `predict`."""

    def _branches(
        self, tensors: Mapping[str, Tensor], unconditional: Mapping[str, Tensor]
    ) -> list[Mapping[str, Tensor]]:
        """Lists the conditions of the predictions that `_guided` combines."""
        return [unconditional, tensors]

    def _guided(self, predictions: Sequence[Tensor], guidance: float) -> Tensor:
        unguided, prompted = predictions
        return unguided + guidance * (prompted - unguided)
