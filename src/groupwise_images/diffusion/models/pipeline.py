"""A pipeline of diffusers as a denoiser: loaded from its folder, guided, cast, decoded and saved; what differs between
pipelines is their `PipelineAdapter`.
"""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Self, final

import torch
from torch import Tensor, nn

from groupwise.config import (
    ConfigError,
    ImportPath,
    Problem,
    call_user,
    check_class,
    installed_names,
    load_installed,
    read_json,
    user_object,
)
from groupwise_images.diffusion.denoiser import Condition, Denoiser, Spacing
from groupwise_images.diffusion.model import Pretrained
from groupwise_images.diffusion.models import autoencoder
from groupwise_images.diffusion.models.families import (
    DiT,
    Flux,
    InstructPix2Pix,
    QwenImage,
    StableDiffusion,
    StableDiffusion3,
    StableDiffusionXL,
    Wan,
)
from groupwise_images.diffusion.models.files import Adapted, load_lora, quiet, save_lora, stored_dtype
from groupwise_images.diffusion.pipeline_adapter import GUIDE, INSTRUCTION, NAME, PipelineAdapter

# The adapter that serves a pipeline: the one that a configuration names, one of this package, or one that an
# installed package brings.

SHIPPED: dict[str, PipelineAdapter] = {
    adapter.pipeline: adapter
    for adapter in (
        StableDiffusion(),
        StableDiffusionXL(),
        DiT(),
        StableDiffusion3(),
        Flux(),
        QwenImage(),
        Wan(),
        InstructPix2Pix(),
    )
}
"""Adapters of this package, by the name of the pipeline's class."""

ENTRY_POINTS = "groupwise.pipelines"
"""The entry points of packages that bring an adapter, each under the name of the pipeline's class."""

KEY = "model.pipeline"


def named_adapter(path: ImportPath, key: str = KEY) -> PipelineAdapter:
    """Makes the adapter that `model.pipeline` names.

    Args:
        path: `package.module:Class`, or the name of an entry point.
        key: what an error calls the setting.

    Raises:
        ConfigError: there is no such class, it is not an adapter, members are missing, or it cannot be made.
    """
    return _made(user_object(path, key, group=ENTRY_POINTS), f"{key} = {str(path)!r}")


def adapter_for(pipeline: str, folder: str) -> PipelineAdapter:
    """Returns the adapter of a class of pipelines: one of this package, or one that an installed package brings.

    Args:
        pipeline: the name of the class.
        folder: the folder of the pipeline, for errors.

    Raises:
        ConfigError: there is none, and how to write one; or that of a package cannot be used.

    Example:
        >>> adapter_for("FluxPipeline", "models/FLUX.1-dev").denoiser
        'transformer'
    """
    if pipeline in SHIPPED:
        return SHIPPED[pipeline]
    installed = installed_names(ENTRY_POINTS)
    if pipeline in installed:
        return _made(load_installed(pipeline, ENTRY_POINTS, KEY).value, f"{KEY} = {pipeline!r}")
    raise ConfigError(
        f"model.path = {folder!r} holds a {pipeline}, and there is no adapter for it (there are those for"
        f" {', '.join([*SHIPPED, *installed])}); write a class that extends {NAME} and name it:"
        f' domain.model.pipeline="mine:{pipeline.removesuffix("Pipeline")}" ({GUIDE})'
    )


def _made(loaded: Any, place: str) -> PipelineAdapter:
    adapter_class = check_class(loaded, PipelineAdapter, place, name=NAME)
    if not isinstance(getattr(adapter_class, "pipeline", None), str):
        message = (
            f'{adapter_class.__name__} lacks pipeline; write pipeline = "...", the _class_name in the folder\'s'
            " model_index.json"
        )
        raise ConfigError(Problem(place, message))
    adapter: PipelineAdapter = call_user(adapter_class, {}, place)
    return adapter


INDEX = "model_index.json"
BASE = "base_model.json"
"""The file next to an adapter's weights that names its base model."""


@final
class PipelineDenoiser(Denoiser):
    """A pipeline as a denoiser; see `groupwise_images.diffusion.denoiser.Denoiser`. Text encoders and autoencoder are
    frozen; the autoencoder computes in fp32.

    Args:
        pipe: a pipeline of diffusers.
        adapter: the adapter of this class of pipelines.
        model: the configuration that names it.
        spacing: the spacing of a flow's noise levels.

    Raises:
        ConfigError: a size it cannot make, a scheduler whose noise levels cannot be read, an adapter it cannot have.
    """

    def __init__(self, pipe: Any, adapter: PipelineAdapter, model: Pretrained, spacing: Spacing) -> None:
        self.pipe, self.adapter, self._model = pipe, adapter, model
        pipe.set_progress_bar_config(disable=True)
        for name, part in pipe.components.items():
            if isinstance(part, nn.Module) and name != adapter.denoiser:
                part.eval().requires_grad_(False)
        if (vae := getattr(pipe, "vae", None)) is not None:
            vae.to(torch.promote_types(vae.dtype, torch.float32))
        self._denoiser: Any = getattr(pipe, adapter.denoiser)
        self._dtype = self._denoiser.dtype
        self.size = _size(adapter, model, pipe)
        self.latent_shape = tuple(adapter.latent_shape(pipe, self.size))
        self.distilled = adapter.takes_guidance(pipe)
        self.video = adapter.video
        self.image_shape = (3, *self.size[-2:])
        self.condition_shape = self.image_shape if adapter.takes_image else None
        self.guided_rows = 2 if model.image_guidance == 1 else 3
        if model.image_guidance != 1 and not (adapter.takes_image and adapter.guided_by_image):
            raise ConfigError(
                f"model.image_guidance = {model.image_guidance:g}: a {adapter.pipeline} is not guided by an image;"
                " write model.image_guidance = 1"
            )
        self.latent_dtype = torch.promote_types(self._dtype, torch.float32)
        module = self._denoiser if model.lora is None else Adapted(self._denoiser, model.lora)
        super().__init__(module, pipe.scheduler, spacing, adapter.shift(pipe, self.latent_shape))

    @property
    def precision(self) -> str:  # pyright: ignore[reportIncompatibleVariableOverride]
        """The types that the frozen parts compute in."""
        frozen = {
            name: str(part.dtype).removeprefix("torch.")
            for name, part in self.pipe.components.items()
            if isinstance(part, nn.Module) and name != self.adapter.denoiser
        }
        described = ", ".join(f"{name} in {dtype}" for name, dtype in sorted(frozen.items()))
        return f"frozen parts compute in their own precision, whatever train.autocast says: {described}"

    def check(self, prompts: Sequence[Mapping[str, Any]]) -> None:
        """Refuses prompts that lack a column the pipeline reads, and negative prompts that only some prompts have.

        Raises:
            ConfigError: names the column and the value.
        """
        self.adapter.check(self.pipe, prompts)
        negative_prompts = [columns.get("negative_prompt") for columns in prompts]
        missing = sum(negative_prompt is None for negative_prompt in negative_prompts)
        if 0 < missing < len(negative_prompts):
            raise ConfigError(
                f"negative_prompt: {missing} of {len(negative_prompts)} prompts have none; give it to all of them, or"
                " to none"
            )
        for negative_prompt in negative_prompts:
            if negative_prompt is not None and not isinstance(negative_prompt, str):
                raise ConfigError(f"negative_prompt: {negative_prompt!r} is no text")
            if negative_prompt and self.distilled:
                raise ConfigError(
                    f"negative_prompt: {negative_prompt!r}: this model was distilled for guidance and is never run"
                    " without the prompt; leave the column out"
                )

    def num_cut(self, prompts: Sequence[Mapping[str, Any]]) -> int:
        tokenizers: list[Any] = [
            part for name, part in self.pipe.components.items() if name.startswith("tokenizer") and callable(part)
        ]
        column = INSTRUCTION if self.adapter.takes_image else "prompt"
        return sum(
            all(
                len(cut(text, truncation=False, verbose=False)["input_ids"]) > cut.model_max_length
                for cut in tokenizers
            )
            for text in (columns.get(column) for columns in prompts)
            if tokenizers and isinstance(text, str)
        )

    @torch.no_grad()
    def encode(self, prompts: Sequence[Mapping[str, Any]]) -> Condition:
        """Encodes prompts with the pipeline's encoders, in the precision of their weights; the column `negative_prompt`
        gives the negative prompt, else it is empty.
        """
        self.check(prompts)
        negative_prompts = [columns.get("negative_prompt") for columns in prompts]
        negatives = None if any(text is None for text in negative_prompts) else [str(text) for text in negative_prompts]
        with autoencoder.without_autocast(self.device):
            tensors, unconditional = self.adapter.encode(self.pipe, prompts, negatives, self.size)
        _check_condition(self.adapter, len(prompts), tensors, unconditional)
        for name, value in [*tensors.items(), *(unconditional or {}).items()]:
            autoencoder.check_finite(value, f"text encoders: they encode prompts ({name}) as")
        return Condition(tensors, unconditional)

    def _forward(self, latents: Tensor, timestep: Tensor, tensors: Mapping[str, Tensor], guidance: float) -> Tensor:
        prediction = self.adapter.forward(self._denoiser, latents.to(self._dtype), timestep, tensors, guidance)
        if prediction.shape != latents.shape:
            raise ConfigError(
                f"{type(self.adapter).__name__}.forward returned {list(prediction.shape)} for latents of"
                f" {list(latents.shape)}; return one prediction of the latents' shape"
            )
        return prediction.to(self.latent_dtype)

    def _branches(
        self, tensors: Mapping[str, Tensor], unconditional: Mapping[str, Tensor]
    ) -> list[Mapping[str, Tensor]]:
        parts = super()._branches(tensors, unconditional)
        return parts if self.guided_rows == 2 else [self.adapter.without_image(unconditional), *parts]

    def _guided(self, predictions: Sequence[Tensor], guidance: float) -> Tensor:
        *imageless, unguided, prompted = predictions
        guided = self.adapter.guided(unguided, prompted, guidance)
        return guided + (self._model.image_guidance - 1) * (unguided - imageless[0]) if imageless else guided

    def to_latents(self, images: Tensor) -> Tensor:
        """Encodes images with the autoencoder.

        Raises:
            ConfigError: they are of another size than the model makes.
        """
        if self.adapter.video or getattr(self.pipe, "vae", None) is None:
            reason = "makes videos" if self.adapter.video else "has no vae"
            raise ConfigError(f"a {self.adapter.pipeline} {reason}, and can learn from no images; take them out")
        if tuple(images.shape[-2:]) != self.size:
            raise ConfigError(
                f"images are {list(images.shape[-2:])} and the model makes {list(self.size)}; write model.size, or give"
                " images of that size"
            )
        unpacked = self.adapter.unpack(self.pipe, torch.zeros(1, *self.latent_shape), self.size)
        encoded = autoencoder.encode(self.pipe.vae, images, frames=unpacked.dim() == 5)
        return self.adapter.pack(encoded).to(self.latent_dtype)

    def decode(self, latents: Tensor) -> Tensor:
        """Decodes images `[N, 3, H, W]` or videos `[N, F, 3, H, W]` in [0, 1], fp32."""
        with torch.no_grad(), autoencoder.without_autocast(self.device):
            decoded = self.adapter.decode(self.pipe, latents, self.size).float()
        expected = (len(latents), *self.size[:-2], 3, *self.size[-2:])
        if decoded.shape != expected:
            raise ConfigError(
                f"{type(self.adapter).__name__}: latents {list(latents.shape)} were decoded as {list(decoded.shape)},"
                f" and the size {list(self.size)} asks for {list(expected)}; see latent_shape, unpack and decode"
            )
        autoencoder.check_finite(decoded, f"{type(self.adapter).__name__}: it decodes latents as")
        return decoded

    def save(self, folder: Path) -> None:
        """Writes the whole pipeline in diffusers' format; of a model with an adapter only the adapter's weights, and
        the name of the model they belong to.
        """
        if isinstance(self.module, Adapted):
            save_lora(self.pipe, self.adapter.denoiser, self._denoiser, folder)
            base = self._model.model_dump(mode="json", include={"path", "revision", "variant"})
            (folder / BASE).write_text(json.dumps(base, indent=2) + "\n")
        else:
            with quiet():
                self.pipe.save_pretrained(folder, safe_serialization=True)

    def with_module(self, module: nn.Module) -> Self:
        """Returns this denoiser with a copy of its module."""
        other = super().with_module(module)
        other._denoiser = module.denoiser if isinstance(module, Adapted) else module
        return other


def _size(adapter: PipelineAdapter, model: Pretrained, pipe: Any) -> tuple[int, ...]:
    """Returns the size that is asked for, or the pipeline's own.

    Raises:
        ConfigError: a video's size where images are made, or the other way round.
    """
    size = model.size or tuple(adapter.default_size(pipe))
    if len(size) == (3 if adapter.video else 2):
        return size
    made, written = ("videos", "[frames, height, width]") if adapter.video else ("images", "[height, width]")
    raise ConfigError(f"model.size = {list(size)}: a {adapter.pipeline} makes {made}; write {written}")


def _check_condition(
    adapter: PipelineAdapter, num: int, tensors: Mapping[str, Tensor], unconditional: Mapping[str, Tensor] | None
) -> None:
    place = f"{type(adapter).__name__}.encode"
    for name, value in tensors.items():
        if len(value) != num:
            raise ConfigError(f"{place}: {name!r} has {len(value)} rows for {num} prompts; return one row a prompt")
    if unconditional is None:
        return
    if differing := sorted(tensors.keys() ^ unconditional.keys()):
        raise ConfigError(f"{place}: {differing[0]!r} is in one of the two conditions alone; return it in both")
    for name, value in tensors.items():
        if value.shape != unconditional[name].shape:
            raise ConfigError(
                f"{place}: {name!r} is {list(value.shape)} of the prompts and {list(unconditional[name].shape)} of the"
                " negative ones; pad both to one fixed length"
            )


def open_pipeline(model: Pretrained, spacing: Spacing, device: torch.device) -> PipelineDenoiser:
    """Opens a pipeline from a folder or a hub id, or an adapter that `save` wrote on top of the model it belongs to.

    Raises:
        ConfigError: a folder without the expected parts, a pipeline of an unknown class, weights that are not
            safetensors.
    """
    folder = pipeline_folder(model)
    if (folder / BASE).is_file():
        return _with_adapter(model, folder, spacing, device)
    adapter = adapter_of(model, folder)
    # One dtype for every part: a text encoder in another than the denoiser's could not be read by it.
    arguments: dict[str, Any] = {
        "dtype": (
            stored_dtype(folder / adapter.denoiser, model.variant)
            if model.dtype == "auto"
            else getattr(torch, model.dtype)
        )
    }
    if model.variant is not None:
        arguments["variant"] = model.variant
    arguments |= {part: None for part in adapter.optional if not (folder / part).is_dir()}
    try:
        pipe: Any = adapter.load(folder, use_safetensors=True, local_files_only=True, **arguments)
    except ConfigError:
        raise
    except (OSError, ValueError, TypeError, KeyError, RuntimeError) as error:
        raise ConfigError(
            f"model.path = {model.path!r} cannot be loaded as {adapter.pipeline}: {error}; weights must be safetensors"
        ) from error
    names = read_json(folder / INDEX).get("id2label")
    if names is not None:
        # A DiT's class names are in the index alone, and diffusers forgets to write them again.
        pipe.register_to_config(id2label=names)
    return PipelineDenoiser(pipe.to(device), adapter, model, spacing)


def is_pipeline(model: Pretrained) -> bool:
    """Tests that a path is a pipeline's folder, an adapter's, or a hub id, rather than the folder of a denoiser
    alone.
    """
    folder = Path(model.path)
    if not folder.is_dir() or (folder / BASE).is_file():
        return True
    index = folder / INDEX
    # A pipeline that is no more than a denoiser and a scheduler (DDPMPipeline) is opened as those.
    return index.is_file() and (
        model.pipeline is not None or read_json(index).get("_class_name") in SHIPPED or not _only_a_denoiser(index)
    )


def _only_a_denoiser(index: Path) -> bool:
    return {name for name, value in read_json(index).items() if isinstance(value, list) and value[0] is not None} == {
        "unet",
        "scheduler",
    }


def pipeline_folder(model: Pretrained) -> Path:
    """Returns the folder of a pipeline, downloaded where its path is a hub id.

    Raises:
        ConfigError: there is no such folder or pipeline.
    """
    import diffusers

    if Path(model.path).is_dir():
        return Path(model.path)
    if model.path.startswith((".", "/", "~")) or model.path.count("/") != 1:
        raise ConfigError(
            f"model.path = {model.path!r} is no folder; give the folder of a pipeline of diffusers, or a hub id such as"
            " owner/name"
        )
    library: Any = diffusers
    try:
        return Path(
            library.DiffusionPipeline.download(
                model.path, revision=model.revision, variant=model.variant, use_safetensors=True
            )
        )
    except (OSError, ValueError) as error:
        raise ConfigError(
            f"model.path = {model.path!r} is no folder, and no pipeline of that name can be downloaded: {error}"
        ) from error


def adapter_of(model: Pretrained, folder: Path) -> PipelineAdapter:
    """Returns the adapter of a folder's pipeline.

    Raises:
        ConfigError: there is none, it is for another class, or the folder lacks a component.
    """
    index = folder / INDEX
    index_entries = read_json(index) if index.is_file() else {}
    name = index_entries.get("_class_name")
    if not isinstance(name, str):
        raise ConfigError(
            f"model.path = {str(folder)!r} has no {INDEX} that names a class of pipelines; give a folder as diffusers"
            " saved it"
        )
    adapter = adapter_for(name, str(folder)) if model.pipeline is None else named_adapter(model.pipeline)
    if adapter.pipeline != name:
        raise ConfigError(
            f"model.path = {str(folder)!r} holds a {name}, and {KEY} = {str(model.pipeline)!r} is for a"
            f" {adapter.pipeline}; leave {KEY} out, or name the adapter of a {name}"
        )
    for part in adapter.components:
        if (
            not isinstance(index_entries.get(part), list)
            or index_entries[part][0] is None
            or not (folder / part).is_dir()
        ):
            raise ConfigError(
                f"model.path = {str(folder)!r} has no {part}/; a {name} needs {', '.join(adapter.components)}"
            )
    return adapter


def _with_adapter(model: Pretrained, folder: Path, spacing: Spacing, device: torch.device) -> PipelineDenoiser:
    base = read_json(folder / BASE)
    if model.lora is None:
        raise ConfigError(
            f"model.path = {model.path!r} is an adapter of {base['path']!r}; write model.lora with the rank and"
            " target_modules it was made with, or load it with pipeline.load_lora_weights and give the folder of the"
            " merged pipeline"
        )
    denoiser = open_pipeline(model.model_copy(update=base), spacing, device)
    assert isinstance(denoiser.module, Adapted)
    load_lora(denoiser.pipe, denoiser.adapter.denoiser, denoiser.module, folder)
    return denoiser
