"""A denoiser with a scheduler and nothing else: on pixels, asked for a class, conditioned on an image, or neither.
`DiTTransformer2DModel` and `UNet2DModel` of diffusers.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, final

import torch
from torch import Tensor, nn

from groupwise.config import ConfigError, read_json
from groupwise.processes import is_out_of_memory
from groupwise_images.diffusion.denoiser import Condition, Denoiser, Spacing
from groupwise_images.diffusion.model import Scratch
from groupwise_images.diffusion.models.files import stored_dtype
from groupwise_images.diffusion.pipeline_adapter import PromptImage

_FOLDERS = {"DiTTransformer2DModel": "transformer", "UNet2DModel": "unet"}


@final
class BareDenoiser(Denoiser):
    """A denoiser on pixels, scaled from [0, 1] to [-1, 1]; see `groupwise_images.diffusion.denoiser.Denoiser`.

    The class asked for is the column `label`; a DiT, which cannot be without classes, is asked for none where it has
    one. The unconditional branch is one more class: the row that a DiT keeps for it, or the last class of a UNet.

    A model with more channels in than out is conditioned on an image of its size, the column `degraded`: the image's
    channels, scaled as the latents are, are concatenated to the latents' own. The unconditional branch is an image of
    zeros, middle grey.

    Args:
        module: a DiT or UNet of diffusers.
        scheduler: flow matching, or one that DDIM's noise levels can be read from.
        spacing: the spacing of a flow's noise levels.
    """

    def __init__(self, module: nn.Module, scheduler: Any, spacing: Spacing) -> None:
        super().__init__(module, scheduler, spacing)
        shape: Any = module.config  # type: ignore[attr-defined]
        side = shape.sample_size
        size = (side, side) if isinstance(side, int) else tuple(side)
        num_drawn = min(shape.in_channels, shape.out_channels or shape.in_channels)
        self.latent_shape = self.image_shape = (num_drawn, *size)
        num_shown = shape.in_channels - num_drawn
        self.condition_shape = (num_shown, *size) if num_shown else None
        self.latent_dtype = torch.promote_types(next(module.parameters()).dtype, torch.float32)
        self._num_classes: int | None = shape.num_embeds_ada_norm if _is_dit(module) else shape.num_class_embeds

    def check(self, prompts: Sequence[Mapping[str, Any]]) -> None:
        """Refuses a prompt without a label, with a label beyond the model's classes, or without the image that the
        model is conditioned on.
        """
        for columns in prompts:
            image = columns.get("degraded")
            if self.condition_shape is not None and not isinstance(image, PromptImage):
                raise ConfigError(
                    f"prompt {columns.get('prompt')!r}: this model is conditioned on an image of"
                    f" {list(self.condition_shape)} (channels, height, width), and the prompt has none; write"
                    " data.source.kind = 'image_pairs'"
                )
            label = columns.get("label")
            if not self._num_named:
                continue
            if not isinstance(label, int) or not 0 <= label < self._num_named:
                prompt_columns = {name: value for name, value in columns.items() if name not in ("degraded", "clean")}
                raise ConfigError(
                    f"prompt {prompt_columns}: this model draws classes 0 to {self._num_named - 1}, named by a whole"
                    " number in the column 'label'"
                )

    @property
    def _num_named(self) -> int:
        """The number of classes of which a prompt must name one; 0 where there is nothing to name."""
        number = self._num_classes or 0
        return 0 if number == 1 and _is_dit(self.module) else number

    def encode(self, prompts: Sequence[Mapping[str, Any]]) -> Condition:
        """Encodes labels, and images where the model is conditioned on them; a model without classes gets zeros as
        labels, which it does not read.
        """
        self.check(prompts)
        labels = torch.tensor(
            [columns["label"] if self._num_named else 0 for columns in prompts], dtype=torch.long, device=self.device
        )
        null = labels
        if self._num_classes is not None:
            null = torch.full_like(labels, self._num_classes if _is_dit(self.module) else self._num_classes - 1)
        if self.condition_shape is None:
            return Condition({"label": labels}, None if self._num_classes is None else {"label": null})
        image = self.to_latents(torch.stack([torch.from_numpy(columns["degraded"].pixels) for columns in prompts]))
        return Condition({"label": labels, "image": image}, {"label": null, "image": torch.zeros_like(image)})

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

    def _forward(self, latents: Tensor, timestep: Tensor, tensors: Mapping[str, Tensor], guidance: float) -> Tensor:
        weights = next(self.module.parameters()).dtype
        class_arguments = {} if self._num_classes is None else {"class_labels": tensors["label"]}
        inputs = latents if self.condition_shape is None else torch.cat([latents, tensors["image"]], 1)
        prediction = self.module(inputs.to(weights), timestep, return_dict=False, **class_arguments)[0]
        return prediction.to(self.latent_dtype)


@contextmanager
def _refused(place: str) -> Iterator[None]:
    """Names the place of whatever diffusers, torch or Python raise on sizes and files that they cannot use."""
    try:
        yield
    except ConfigError:
        raise
    except Exception as error:
        if is_out_of_memory(error):
            raise
        raise ConfigError(f"{place}: {type(error).__name__}: {error}") from error


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
        with _refused(_settings_text(config)):
            module = getattr(diffusers, config.name)(**_plain(config.shape))
            scheduler = scheduler_class(**settings)
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
    place = f"model.path = {str(folder)!r}"
    with _refused(f"{place} cannot be loaded as {name} with {scheduler_name}; weights must be safetensors"):
        module = getattr(diffusers, name).from_pretrained(
            folder, subfolder=part, use_safetensors=True, dtype=weights_dtype, variant=variant
        )
        scheduler = getattr(diffusers, str(scheduler_name)).from_pretrained(folder, subfolder="scheduler")
    return _tried(module.to(device), scheduler, spacing, place)


def _settings_text(config: Scratch) -> str:
    return f"model.shape = {dict(config.shape)}, scheduler settings {dict(config.scheduler.settings)}"


def _tried(module: nn.Module, scheduler: Any, spacing: Spacing, settings_text: str) -> BareDenoiser:
    """Opens the denoiser and passes one image through it: a class of diffusers takes sizes that it cannot work with,
    such as no layers at all.
    """
    with _refused(f"{settings_text}: a {type(module).__name__} of these sizes fails on one image"):
        denoiser = BareDenoiser(module, scheduler, spacing)
        latents = torch.zeros(1, *denoiser.latent_shape, dtype=denoiser.latent_dtype, device=denoiser.device)
        time, label = (torch.zeros(1, dtype=dtype, device=denoiser.device) for dtype in (latents.dtype, torch.long))
        image = latents.new_zeros(1, *(denoiser.condition_shape or ()))
        with torch.no_grad(), torch.random.fork_rng(devices=[]):
            denoiser._forward(latents, time, {"label": label, "image": image}, 1.0)
    return denoiser


def _plain(value: Any) -> Any:
    """Converts tables and lists to the types that diffusers' classes take."""
    if isinstance(value, Mapping):
        return {name: _plain(element) for name, element in value.items()}
    return tuple(_plain(element) for element in value) if isinstance(value, list | tuple) else value


def _is_dit(module: nn.Module) -> bool:
    return type(module).__name__ == "DiTTransformer2DModel"
