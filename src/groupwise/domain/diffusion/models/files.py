"""Reads what a part's files say beside its weights: their dtype before they are loaded, and its settings."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch

_DTYPES = {"F16": torch.float16, "BF16": torch.bfloat16, "F32": torch.float32, "F64": torch.float64}


def stored_dtype(folder: Path, variant: str | None = None) -> torch.dtype:
    """Reads the dtype in which weights were saved: that of the first tensor of floats; fp32 where no tensor has a dtype
    that torch computes with.

    Args:
        folder: of a model of diffusers, with safetensors.
        variant: of the files, such as `fp16`.

    Example:
        >>> import tempfile
        >>> from safetensors.torch import save_file
        >>> folder = Path(tempfile.mkdtemp())
        >>> save_file({"weight": torch.zeros(1, dtype=torch.bfloat16)}, folder / "diffusion_pytorch_model.safetensors")
        >>> save_file(
        ...     {"weight": torch.zeros(1, dtype=torch.float16)},
        ...     folder / "diffusion_pytorch_model.fp16-00001-of-00001.safetensors",
        ... )
        >>> stored_dtype(folder), stored_dtype(folder, "fp16")
        (torch.bfloat16, torch.float16)
    """
    from safetensors import SafetensorError, safe_open

    name = "diffusion_pytorch_model" + ("" if variant is None else f".{variant}")
    for file in sorted([*folder.glob(f"{name}.safetensors"), *folder.glob(f"{name}-*.safetensors")]):
        try:
            with safe_open(file, "pt") as weights:
                dtypes = (_DTYPES.get(weights.get_slice(key).get_dtype()) for key in weights.keys())  # noqa: SIM118 (no mapping)
                if (stored := next((dtype for dtype in dtypes if dtype is not None), None)) is not None:
                    return stored
        except (OSError, SafetensorError):
            # The error is raised where the file is loaded.
            continue
    return torch.float32


def settings_of(part: Any) -> dict[str, Any]:
    """Returns a part's settings, without what diffusers and transformers note for themselves: its path, and which keys
    were left at their defaults, in an order that differs between processes.

    Args:
        part: of a pipeline: a model, a scheduler; anything else has none.

    Example:
        >>> from diffusers import DDIMScheduler
        >>> sorted(settings_of(DDIMScheduler()))[:2], settings_of(None)
        (['_class_name', 'beta_end'], {})
    """
    config = getattr(part, "config", None)
    if config is None:
        return {}
    settings = config.to_dict() if hasattr(config, "to_dict") else dict(config)
    return {"_class_name": type(part).__name__} | {
        name: value for name, value in settings.items() if not name.startswith("_")
    }
