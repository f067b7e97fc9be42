"""Opens a configured model as a denoiser."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from torch import nn

from groupwise.config import ConfigError, read_json
from groupwise.learner.quantised import refuse_quantised
from groupwise.streams import Streams
from groupwise_images.diffusion.config import DiffusionConfig
from groupwise_images.diffusion.denoiser import Denoiser
from groupwise_images.diffusion.model import Scratch
from groupwise_images.diffusion.models.bare import BareDenoiser, open_bare, scratch
from groupwise_images.diffusion.models.files import quiet, stored_dtype
from groupwise_images.diffusion.models.pipeline import (
    INDEX,
    PipelineDenoiser,
    adapter_of,
    is_pipeline,
    open_pipeline,
    pipeline_folder,
)

# Opens a configured model without its weights: every tensor has a shape and no data (`meta`), so that the costs of a
# model that no machine here could hold are counted from its folder's configuration files alone.

META = torch.device("meta")


def open_without_weights(config: DiffusionConfig) -> Denoiser:
    """Opens the denoiser that a configuration names, without reading weights.

    Raises:
        ConfigError: a folder without the expected parts, a pipeline of an unknown class.
    """
    model = config.model
    with quiet():
        if isinstance(model, Scratch):
            return scratch(model, config.spacing, 0, META)
        if not is_pipeline(model):
            return _bare(Path(model.path), model.dtype, model.variant, config)
        folder = pipeline_folder(model)
        adapter = adapter_of(model, folder)
        dtype = _dtype(model.dtype, folder / adapter.denoiser, model.variant)
        index = read_json(folder / INDEX)
        components = {name: value for name, value in index.items() if isinstance(value, list) and len(value) == 2}
        parts = {
            name: None
            if value[0] is None or not (folder / name).is_dir()
            else _part(folder / name, value[0], value[1], dtype)
            for name, value in components.items()
        }
        settings = {name: value for name, value in index.items() if not name.startswith("_") and name not in components}
        import diffusers

        pipeline = getattr(diffusers, adapter.pipeline, None)
        if pipeline is None:
            raise ConfigError(
                f"model.path = {str(folder)!r} holds a {adapter.pipeline}, which is no class of diffusers here, so that"
                " its costs cannot be counted without its weights"
            )
        return PipelineDenoiser(pipeline(**parts, **settings), adapter, model, config.spacing)


def _bare(folder: Path, dtype: str, variant: str | None, config: DiffusionConfig) -> Denoiser:
    part = next((name for name in ("transformer", "unet") if (folder / name / "config.json").is_file()), None)
    if part is None:
        raise ConfigError(f"model.path = {str(folder)!r} has neither transformer/config.json nor unet/config.json")
    name = str(read_json(folder / part / "config.json").get("_class_name"))
    module = _part(folder / part, "diffusers", name, _dtype(dtype, folder / part, variant))
    scheduler_name = str(read_json(folder / "scheduler" / "scheduler_config.json").get("_class_name"))
    return BareDenoiser(module, _part(folder / "scheduler", "diffusers", scheduler_name, torch.float32), config.spacing)


def _part(folder: Path, library: str, name: str, dtype: torch.dtype) -> Any:
    """Opens one part of a pipeline: a model without weights, anything else as it is."""
    import diffusers
    import transformers

    libraries: dict[str, Any] = {"diffusers": diffusers, "transformers": transformers}
    part = getattr(libraries.get(library), name, None)
    if part is None:
        raise ConfigError(f"{folder} holds a {library}.{name}, which is no class of diffusers or transformers here")
    if not (isinstance(part, type) and issubclass(part, nn.Module)):
        return part.from_pretrained(folder)
    with META:
        if library == "diffusers":
            made: Any = part
            module = made.from_config(made.load_config(folder))
        else:
            made = part
            module = made(made.config_class.from_pretrained(folder))
    return nn.Module.to(module, dtype)


def _dtype(name: str, folder: Path, variant: str | None) -> torch.dtype:
    return stored_dtype(folder, variant) if name == "auto" else getattr(torch, name)


_MISSING_FEATURES = {"lora": "no format for adapters, and is trained whole", "size": "one size of images"}


def open_denoiser(config: DiffusionConfig, streams: Streams, device: torch.device) -> Denoiser:
    """Opens the denoiser that a configuration names, without dropout of any kind, so that the policy that is rescored
    is the one that sampled.

    Raises:
        ConfigError: a folder without the expected parts, quantised weights, a scheduler of an unknown family.
    """
    with quiet():
        denoiser = _open(config, streams, device)
    without_dropout(denoiser.module)
    return denoiser


def without_dropout(module: nn.Module) -> None:
    """Sets every dropout inside to 0, also that of class labels."""
    modules: list[Any] = list(module.modules())
    for part in modules:
        if isinstance(part, nn.Dropout):
            part.p = 0.0
        # Class labels that are dropped at random while training (`LabelEmbedding`).
        if isinstance(getattr(part, "dropout_prob", None), float):
            vars(part)["dropout_prob"] = 0.0


def _open(config: DiffusionConfig, streams: Streams, device: torch.device) -> Denoiser:
    model = config.model
    if isinstance(model, Scratch):
        denoiser: BareDenoiser = scratch(
            model, config.spacing, streams.seed("model") if model.seed is None else model.seed, device
        )
        return denoiser
    for file in sorted(Path(model.path).glob("*/config.json")):
        refuse_quantised(read_json(file), f"model.path = {model.path!r}: {file.parent.name}")
    if is_pipeline(model):
        return open_pipeline(model, config.spacing, device)
    for key in ("lora", "size"):
        if getattr(model, key) is not None:
            raise ConfigError(
                f"model.{key}: {model.path!r} holds a denoiser without a pipeline, which has {_MISSING_FEATURES[key]};"
                " leave it out"
            )
    return open_bare(Path(model.path), model.dtype, config.spacing, device, model.variant)
