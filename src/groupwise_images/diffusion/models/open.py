"""Opens a configured model as a denoiser."""

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
from groupwise_images.diffusion.models.files import quiet
from groupwise_images.diffusion.models.pipeline import (
    is_pipeline,
    open_pipeline,
)

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
