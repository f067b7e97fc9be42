"""A denoiser with a scheduler and nothing else: on pixels, asked for a class or for nothing. `DiTTransformer2DModel`
and `UNet2DModel` of diffusers.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, Self, final

import torch
from torch import Tensor, nn

from groupwise.config import ConfigError, read_json
from groupwise.domain.diffusion.denoiser import Condition
from groupwise.domain.diffusion.model import Scratch
from groupwise.domain.diffusion.models.files import stored_dtype
from groupwise.domain.diffusion.noise_schedule import (
    Parametrisation,
    Schedule,
    is_flow,
    read_parametrisation,
    read_schedule,
)
from groupwise.processes import is_out_of_memory

Spacing = Literal["uniform", "scheduler"]

_FOLDERS = {"DiTTransformer2DModel": "transformer", "UNet2DModel": "unet"}


@final
class BareDenoiser:
    """A denoiser on pixels, scaled from [0, 1] to [-1, 1]; see `groupwise.domain.diffusion.denoiser.Denoiser`.

    The class asked for is the column `label`. The unconditional branch is one more class: the row that a DiT keeps for
    it, or the last class of a UNet.

    `encoders` is empty: a class is no text, and `precision` says nothing, for there are no frozen parts.

    Args:
        module: a DiT or UNet of diffusers.
        scheduler: flow matching, or one that DDIM's noise levels can be read from.
        spacing: of a flow's noise levels.
    """

    encoders = precision = ""
    video = False

    def __init__(self, module: nn.Module, scheduler: Any, spacing: Spacing) -> None:
        self.module, self.scheduler = module, scheduler
        self._spacing: Spacing = spacing
        shape: Any = module.config  # type: ignore[attr-defined]
        side = shape.sample_size
        self.latent_shape = (shape.in_channels, *((side, side) if isinstance(side, int) else tuple(side)))
        self.latent_dtype = torch.promote_types(next(module.parameters()).dtype, torch.float32)
        self._num_classes: int | None = shape.num_embeds_ada_norm if _is_dit(module) else shape.num_class_embeds
        self._flow = is_flow(scheduler)
        # A scheduler that cannot be read is refused now.
        read_schedule(scheduler, 2, spacing=spacing)
        self.parametrisation: Parametrisation = read_parametrisation(scheduler)

    @property
    def device(self) -> torch.device:
        """The device that computes."""
        return next(self.module.parameters()).device

    def check(self, prompts: Sequence[Mapping[str, Any]]) -> None:
        """Refuses a prompt without a label, or with one beyond the model's classes."""
        if self._num_classes is None:
            return
        for columns in prompts:
            label = columns.get("label")
            if not isinstance(label, int) or not 0 <= label < self._num_classes:
                prompt_columns = dict(columns)
                raise ConfigError(
                    f"prompt {prompt_columns}: this model draws classes 0 to {self._num_classes - 1}, named by a whole"
                    " number in the column 'label'"
                )

    def encode(self, prompts: Sequence[Mapping[str, Any]]) -> Condition:
        """Encodes labels as conditions; a model without classes gets zeros, which it does not read."""
        self.check(prompts)
        if self._num_classes is None:
            return Condition({"label": torch.zeros(len(prompts), dtype=torch.long, device=self.device)})
        null = self._num_classes if _is_dit(self.module) else self._num_classes - 1
        labels = torch.tensor([columns["label"] for columns in prompts], dtype=torch.long, device=self.device)
        return Condition({"label": labels}, {"label": torch.full_like(labels, null)})

    def predict(self, latents: Tensor, timestep: Tensor, condition: Condition, guidance: float) -> Tensor:
        """Predicts under guidance."""
        label = condition.tensors["label"]
        if guidance == 1 or self._num_classes is None:
            return self._forward(latents, timestep, label)
        assert condition.unconditional is not None
        predictions = self._forward(
            torch.cat([latents, latents]),
            torch.cat([timestep, timestep]),
            torch.cat([condition.unconditional["label"], label]),
        )
        unguided, prompted = predictions.chunk(2)
        return unguided + guidance * (prompted - unguided)

    def schedule(self, num_steps: int) -> Schedule:
        """Returns the noise levels of `num_steps` transitions."""
        return read_schedule(self.scheduler, num_steps, spacing=self._spacing)

    def noised(self, time: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Returns timestep, signal and noise at times in (0, 1)."""
        total = int(self.scheduler.config.num_train_timesteps)
        if self._flow:
            return time * total, 1 - time, time
        index = (time * total).long().clamp(max=total - 1)
        alphas = self.scheduler.alphas_cumprod.to(time)[index]
        return index.to(time), alphas.sqrt(), (1 - alphas).sqrt()

    def to_latents(self, images: Tensor) -> Tensor:
        """Scales pixels to [-1, 1]."""
        return images.to(self.device, self.latent_dtype) * 2 - 1

    def decode(self, latents: Tensor) -> Tensor:
        """Scales latents to pixels in [0, 1]."""
        return (latents.float() / 2 + 0.5).clamp(0, 1)

    def save(self, folder: Path) -> None:
        """Writes `transformer/` or `unet/` and `scheduler/`, both in diffusers' format."""
        part: Any = self.module
        part.save_pretrained(folder / _FOLDERS[type(part).__name__], safe_serialization=True)
        self.scheduler.save_pretrained(folder / "scheduler")

    def with_module(self, module: nn.Module) -> Self:
        """Returns this denoiser with a copy of its module."""
        other = copy.copy(self)
        other.module = module
        return other

    def _forward(self, latents: Tensor, timestep: Tensor, label: Tensor) -> Tensor:
        weights = next(self.module.parameters()).dtype
        class_arguments = {} if self._num_classes is None else {"class_labels": label}
        prediction = self.module(latents.to(weights), timestep, return_dict=False, **class_arguments)[0]
        return prediction.to(self.latent_dtype)


def scratch(config: Scratch, spacing: Spacing, seed: int, device: torch.device) -> BareDenoiser:
    """Makes a denoiser with fresh weights.

    Raises:
        ConfigError: an argument that the class does not take, or sizes it refuses.
    """
    import diffusers

    scheduler_class = getattr(diffusers, config.scheduler.name)
    settings = dict(config.scheduler.settings)
    if config.scheduler.name == "DDIMScheduler":
        settings.setdefault("clip_sample", False)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        try:
            module = getattr(diffusers, config.name)(**_plain(config.shape))
            scheduler = scheduler_class(**settings)
        except Exception as error:  # diffusers checks some of its arguments, and torch and Python the others
            if is_out_of_memory(error):
                raise
            raise ConfigError(f"{_settings_text(config)}: {error}") from error
    # Through nn.Module's own `to`: diffusers warns about parts that it would keep in fp32, of which these classes have
    # none.
    nn.Module.to(module, device, getattr(torch, config.dtype))
    return _tried(module, scheduler, spacing, _settings_text(config))


def open_bare(
    folder: Path, dtype: str, spacing: Spacing, device: torch.device, variant: str | None = None
) -> BareDenoiser:
    """Opens a denoiser from a folder that `save` wrote, or that has the same parts.

    Raises:
        ConfigError: a part is missing or of an unknown class.
    """
    import diffusers

    part = next((name for name in _FOLDERS.values() if (folder / name / "config.json").is_file()), None)
    if part is None or not (folder / "scheduler" / "scheduler_config.json").is_file():
        entries = sorted(path.name for path in folder.iterdir()) if folder.is_dir() else "nothing"
        raise ConfigError(
            f"model.path = {str(folder)!r} holds {entries}; a denoiser's folder has transformer/ or unet/, and"
            " scheduler/, in diffusers' format"
        )
    name = read_json(folder / part / "config.json").get("_class_name")
    if name not in _FOLDERS:
        raise ConfigError(
            f"model.path = {str(folder)!r}: {part}/ holds a {name}; without a pipeline around it,"
            f" {' or '.join(_FOLDERS)} can be drawn from"
        )
    weights_dtype = stored_dtype(folder / part, variant) if dtype == "auto" else getattr(torch, dtype)
    scheduler_name = read_json(folder / "scheduler" / "scheduler_config.json").get("_class_name")
    try:
        module = getattr(diffusers, name).from_pretrained(
            folder, subfolder=part, use_safetensors=True, dtype=weights_dtype, variant=variant
        )
        scheduler = getattr(diffusers, str(scheduler_name)).from_pretrained(folder, subfolder="scheduler")
    except Exception as error:  # a stranger's folder: diffusers raises whatever its parts do
        if is_out_of_memory(error):
            raise
        raise ConfigError(
            f"model.path = {str(folder)!r} cannot be loaded as {name} with {scheduler_name}: {error}; weights must be"
            " safetensors"
        ) from error
    return _tried(module.to(device), scheduler, spacing, f"model.path = {str(folder)!r}")


def _settings_text(config: Scratch) -> str:
    return f"model.shape = {dict(config.shape)}, scheduler settings {dict(config.scheduler.settings)}"


def _tried(module: nn.Module, scheduler: Any, spacing: Spacing, settings_text: str) -> BareDenoiser:
    """Opens the denoiser and passes one image through it: a class of diffusers takes sizes that it cannot work with,
    such as no layers at all.
    """
    try:
        denoiser = BareDenoiser(module, scheduler, spacing)
        latents = torch.zeros(1, *denoiser.latent_shape, dtype=denoiser.latent_dtype, device=denoiser.device)
        time, label = (torch.zeros(1, dtype=dtype, device=denoiser.device) for dtype in (latents.dtype, torch.long))
        with torch.no_grad(), torch.random.fork_rng(devices=[]):
            denoiser._forward(latents, time, label)
    except ConfigError:
        raise
    except Exception as error:
        if is_out_of_memory(error):
            raise
        raise ConfigError(
            f"{settings_text}: a {type(module).__name__} of these sizes fails on one image: {type(error).__name__}:"
            f" {error}"
        ) from error
    return denoiser


def _plain(value: Any) -> Any:
    """Converts tables and lists to the types that diffusers' classes take."""
    if isinstance(value, Mapping):
        return {name: _plain(element) for name, element in value.items()}
    return tuple(_plain(element) for element in value) if isinstance(value, list | tuple) else value


def _is_dit(module: nn.Module) -> bool:
    return type(module).__name__ == "DiTTransformer2DModel"
