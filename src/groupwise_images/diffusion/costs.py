"""Counts what a step of a diffusion model costs, from its configuration: no weight is read."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from groupwise.config import ConfigError
from groupwise.domain.costs import ImageCosts
from groupwise.domain.pass_sizes import (
    DECODING,
    MOST_ROWS,
    SAMPLING,
    UPDATE,
    PassSizes,
    num_bytes,
    num_weights,
    pass_budget,
    pass_cost,
    timed,
)
from groupwise.processes import is_out_of_memory
from groupwise_images.diffusion.config import DiffusionConfig
from groupwise_images.diffusion.denoiser import Condition, Denoiser
from groupwise_images.diffusion.image_prompts import PromptConditions
from groupwise_images.diffusion.models.open import META, open_without_weights
from groupwise_images.diffusion.pipeline_adapter import PromptImage
from groupwise_images.diffusion.transition import Schedule

MOST_TIMED_BYTES = 2**30
"""Weights of a larger model are not made here to time it."""


def image_costs(config: DiffusionConfig, *, copies: int, checkpointing: bool, time: bool) -> ImageCosts:
    """Counts the costs of a step.

    Args:
        copies: noised copies a member that an update learns from, in place of transitions; 0 where it does not.
        checkpointing: whether activations are computed again.
        time: whether passes are timed here, where the model is small enough.
    """
    denoiser = open_without_weights(config)
    module: Any = denoiser.module
    if checkpointing:
        module.enable_gradient_checkpointing()
    guided = config.guidance != 1 or bool(config.sampling_schedule)
    parts: dict[str, Any] = getattr(getattr(denoiser, "pipe", None), "components", {})
    inner = {id(part) for part in module.modules()}
    frozen = [part for part in parts.values() if isinstance(part, nn.Module) and id(part) not in inner]
    condition = _condition(denoiser)
    guidance = 2.0 if guided and condition.unconditional is not None else 1.0
    rows_of_model = 1 if guidance == 1 else denoiser.guided_rows
    forward, update = (pass_cost(run) for run in _passes(denoiser, condition, guidance, META))
    decode = pass_cost(
        lambda rows: denoiser.decode(torch.zeros(rows, *denoiser.latent_shape, dtype=torch.float32, device=META))
    )
    weights: dict[str, Any] = {
        "parameters": num_weights(module),
        "trained": num_weights(module, trained=True),
        "weight_bytes": num_bytes(module),
        "trained_bytes": num_bytes(module, trained=True),
    }
    if time and weights["weight_bytes"] <= MOST_TIMED_BYTES:
        module.to_empty(device="cpu")
        with torch.no_grad():
            for tensor in (*module.parameters(), *module.buffers()):
                tensor.zero_()
        passes = _passes(denoiser, condition, guidance, torch.device("cpu"))
        forward, update = (timed(cost, run) for cost, run in zip((forward, update), passes, strict=True))
    decisions = config.num_steps - 1 if config.window is None else config.window.size
    element_bytes = torch.empty(0, dtype=denoiser.latent_dtype).element_size()
    shape = tuple(getattr(denoiser, "size", denoiser.latent_shape[1:]))
    inside: Any = getattr(module, "denoiser", module)
    return ImageCosts(
        name=f"{type(inside).__name__}, images of {' x '.join(map(str, shape))} pixels",
        **weights,
        frozen_bytes=sum(num_bytes(part) for part in frozen),
        forward=forward,
        update=update,
        decode=decode,
        rows_of_model=rows_of_model,
        sampled_a_prompt=0,
        sampled_a_member=config.num_steps,
        updated_a_prompt=0,
        updated_a_member=copies or decisions,
        # The latents before and after every transition, and its mean; or a copy's noise and its prediction.
        member_bytes=element_bytes * math.prod(denoiser.latent_shape) * 2 * ((copies or decisions) + 1),
        stated_rows=config.transitions_at_once,
        is_counted=True,
        keeps_graph=not checkpointing and not copies and config.transitions_at_once is None,
    )


def _passes(
    denoiser: Denoiser, condition: Condition, guidance: float, device: torch.device
) -> tuple[Callable[[int], Any], Callable[[int], Any]]:
    """Returns a prediction without gradient and one with its backward pass, each over so many rows of zeros."""
    shown, module = _on(condition, device), denoiser.module

    def predict(rows: int) -> Tensor:
        return denoiser.predict(
            torch.zeros(rows, *denoiser.latent_shape, dtype=denoiser.latent_dtype, device=device),
            torch.zeros(rows, dtype=denoiser.latent_dtype, device=device),
            shown.select(torch.zeros(rows, dtype=torch.long, device=device)),
            guidance,
        )

    def differentiate(rows: int) -> None:
        trained = [parameter for parameter in module.parameters() if parameter.requires_grad]
        module.train()
        torch.autograd.grad(predict(rows).sum(), trained, allow_unused=True)

    return torch.no_grad()(predict), differentiate


def _condition(denoiser: Denoiser) -> Condition:
    """Encodes a prompt of any kind that a model may read."""
    columns: dict[str, Any] = {"prompt": "a cat", "instruction": "a cat", "label": 0} | _class_name(denoiser)
    if denoiser.condition_shape is not None:
        columns["degraded"] = PromptImage(np.zeros(denoiser.condition_shape, "float32"))
    try:
        return denoiser.encode([columns])
    except RuntimeError as error:
        name = type(getattr(denoiser, "pipe", denoiser)).__name__
        raise ConfigError(
            f"model: the text encoder of a {name} computes with the values of its tensors, so that it cannot be counted"
            " without weights; train one step with train.prompts_per_step = 1 and read the peak memory in its metrics"
        ) from error


def _class_name(denoiser: Denoiser) -> dict[str, str]:
    """Returns a prompt that a pipeline of classes understands."""
    names = getattr(getattr(getattr(denoiser, "pipe", None), "config", None), "id2label", None)
    return {"prompt": str(next(iter(names.values()))).split(",")[0]} if names else {}


def _on(condition: Condition, device: torch.device) -> Condition:
    """Returns a condition of zeros of the same shapes on another device."""

    def zeros(tensors: Any) -> dict[str, Tensor]:
        return {name: torch.zeros(value.shape, dtype=value.dtype, device=device) for name, value in tensors.items()}

    unconditional = None if condition.unconditional is None else zeros(condition.unconditional)
    return Condition(zeros(condition.tensors), unconditional)


# Measures how many rows a diffusion model's passes take: without gradient, with one, and of decoding.


def measure_passes(
    denoiser: Denoiser,
    sizes: PassSizes,
    conditions: PromptConditions,
    schedule: Schedule,
    rows_of_model: int,
    reserved_bytes: float,
    agree: Callable[[int], int] | None = None,
    memory_remedy: str = "",
) -> None:
    """Finds the rows of every kind of pass that is not known; no gradient is accumulated.

    Args:
        denoiser: the model.
        sizes: receive the rows.
        conditions: of one prompt, with which passes are made.
        schedule: gives a time to predict at.
        rows_of_model: rows of the model that one row takes: several under guidance.
        reserved_bytes: what will be allocated beside the passes, such as an optimiser's moments.
        agree: returns the smallest of one number a process, where weights are sharded.
        memory_remedy: what to write where memory runs out.

    Raises:
        ConfigError: weights are sharded, and memory ran out.
    """
    budget = pass_budget(denoiser.device, reserved_bytes)
    trained = [parameter for parameter in denoiser.module.parameters() if parameter.requires_grad]

    def latents(num: int) -> Tensor:
        return torch.zeros(num, *denoiser.latent_shape, dtype=denoiser.latent_dtype, device=denoiser.device)

    def predict(num: int) -> Tensor:
        start = latents(num)
        time = schedule.timestep[:1].to(start).expand(num)
        condition = conditions.select(torch.zeros(num, dtype=torch.long, device=start.device))
        return denoiser.predict(start, time, condition, 2.0 if rows_of_model > 1 else 1.0)

    def differentiate(num: int) -> None:
        with torch.enable_grad():
            torch.autograd.grad(predict(num).sum(), trained, allow_unused=True)

    measure = partial(sizes.measure, device=denoiser.device, budget_bytes=budget)
    try:
        with torch.no_grad():
            measure(SAMPLING, predict, most=max(1, MOST_ROWS // rows_of_model), agree=agree)
            measure(DECODING, lambda num: denoiser.decode(latents(num)))
        if trained:
            measure(UPDATE, differentiate, most=None, agree=agree)
    except Exception as error:
        if not is_out_of_memory(error):
            raise
        raise ConfigError(f"memory ran out while passes were measured; write {memory_remedy}") from error
