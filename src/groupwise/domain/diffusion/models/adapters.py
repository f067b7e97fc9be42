"""The adapter that serves a pipeline: the one that a configuration names, one of this package, or one that an installed
package brings.
"""

from __future__ import annotations

from typing import Any

from groupwise.config import (
    ConfigError,
    ImportPath,
    Problem,
    call_user,
    check_class,
    installed_names,
    load_installed,
    user_object,
)
from groupwise.domain.diffusion.models.dit import DiT
from groupwise.domain.diffusion.models.flux import Flux
from groupwise.domain.diffusion.models.instruct_pix2pix import InstructPix2Pix
from groupwise.domain.diffusion.models.qwen_image import QwenImage
from groupwise.domain.diffusion.models.stable_diffusion import StableDiffusion
from groupwise.domain.diffusion.models.stable_diffusion_3 import StableDiffusion3
from groupwise.domain.diffusion.models.stable_diffusion_xl import StableDiffusionXL
from groupwise.domain.diffusion.models.wan import Wan
from groupwise.domain.diffusion.pipeline_adapter import GUIDE, NAME, PipelineAdapter

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
        ConfigError: there is no such class, it is no adapter, members are missing, or it cannot be made.
    """
    return _made(user_object(path, key, group=ENTRY_POINTS), f"{key} = {str(path)!r}")


def adapter_for(pipeline: str, folder: str) -> PipelineAdapter:
    """Returns the adapter of a class of pipelines: one of this package, or one that an installed package brings.

    Args:
        pipeline: the name of the class.
        folder: of the pipeline, for errors.

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
