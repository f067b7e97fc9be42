"""Small task models that are trained here, once: the loop, and the folder that keeps one for later runs."""

import logging
import math
import tempfile
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from groupwise.checkpoint import Cache, StorageError, content_key

log = logging.getLogger("groupwise")

Write = Callable[[Path], object]


def fit(
    network: nn.Module,
    loss: Callable[[int], Tensor],
    *,
    num_steps: int,
    learning_rate: float,
    least: float,
    betas: tuple[float, float] = (0.9, 0.999),
) -> None:
    """Trains a network by AdamW, with a rate that rises for 50 steps and falls along a cosine.

    Args:
        network: with fresh weights; it is left in evaluation mode.
        loss: of a step.
        num_steps: optimiser steps.
        learning_rate: the highest rate.
        least: the share of it at the end.
        betas: of AdamW.
    """
    optimiser = torch.optim.AdamW(network.parameters(), lr=learning_rate, betas=betas, weight_decay=0.01)
    network.train()
    log.info("training the task model, once: %d steps", num_steps)
    start = time.perf_counter()
    for step in range(num_steps):
        cosine = least + (1 - least) * 0.5 * (1 + math.cos(math.pi * step / num_steps))
        for group in optimiser.param_groups:
            group["lr"] = learning_rate * min(1.0, (step + 1) / 50) * cosine
        optimiser.zero_grad()
        loss(step).backward()
        nn.utils.clip_grad_norm_(network.parameters(), 1.0)
        optimiser.step()
    log.info("the task model is trained, in %.0f s", time.perf_counter() - start)
    network.eval()


def kept(config: Mapping[str, Any], version: int, train: Callable[[], Write]) -> Path:
    """Returns the folder of a trained model, from the cache where it was trained before.

    Args:
        config: what its weights depend on.
        version: of the code that trains it.
        train: trains it and returns what writes it into a folder.
    """
    key = content_key({"config": dict(config), "version": version, "torch": torch.__version__})
    if (folder := Cache().get("task_model", key)) is not None:
        return folder
    write = train()
    try:
        return Cache().put("task_model", key, write)
    except (StorageError, OSError) as error:
        log.warning("the task model could not be kept for later runs: %s", error)
        folder = Path(tempfile.mkdtemp(prefix="groupwise-"))
        write(folder)
        return folder
