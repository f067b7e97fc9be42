"""Measures how many rows a diffusion model's passes take: without gradient, with one, and of decoding."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import torch
from torch import Tensor

from groupwise.config import ConfigError
from groupwise.domain.pass_sizes import DECODING, MOST_ROWS, SAMPLING, UPDATE, PassSizes, pass_budget
from groupwise.processes import is_out_of_memory
from groupwise_images.diffusion.denoiser import Denoiser
from groupwise_images.diffusion.image_prompts import PromptConditions
from groupwise_images.diffusion.transition import Schedule


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
