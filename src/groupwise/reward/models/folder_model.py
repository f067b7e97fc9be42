"""The common part of rewards that use a transformers model: loading from a local folder, the error of a missing model,
and the device.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from groupwise.reward.error import RewardError


def load_from(kind: str, path: str, load: Callable[[], Any], needed_files: str, get: str) -> Any:
    """Loads a model from a folder and returns it.

    Args:
        path: where its model should be.
        load: reads the model from the folder.
        needed_files: what the folder must hold, for the message.
        get: the command or place that provides it.

    Raises:
        RewardError: there is no such folder, or it cannot be read; says what is wanted and where to get it.

    Example:
        >>> load_from("clip_score", "nowhere", lambda: None, "a CLIP model", "hf download ...")
        Traceback (most recent call last):
        ...
        groupwise.reward.error.RewardError: clip_score: path = 'nowhere' is no folder; it needs a CLIP model. Get it with: hf download ...
    """  # noqa: E501
    if not Path(path).is_dir():
        raise RewardError(f"{kind}: path = {path!r} is no folder; it needs {needed_files}. Get it with: {get}")
    try:
        return load()
    except (OSError, ValueError, ImportError, KeyError, AttributeError, RuntimeError) as error:
        present_files = ", ".join(sorted(file.name for file in Path(path).iterdir())) or "nothing"
        raise RewardError(
            f"{kind}: path = {path!r} cannot be loaded: {error}; it needs {needed_files}, and holds"
            f" {present_files}. Get it with: {get}"
        ) from error


def place(device: str) -> str:
    """Returns the name of a torch device; `auto` is the accelerator where the machine has one."""
    import torch

    if device != "auto":
        return device
    return str(torch.accelerator.current_accelerator()) if torch.accelerator.is_available() else "cpu"
