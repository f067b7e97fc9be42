"""Questions with their pictures as vectors, by a CLIP-shaped model of transformers."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors.numpy import load_file, save_file
from transformers import AutoImageProcessor, AutoModel, AutoTokenizer

from groupwise.causal_lm.loading import without_progress_bars
from groupwise.config import ConfigError
from groupwise_selection.embedder import ClipEmbedder
from groupwise_selection.example import content
from groupwise_selection.task_model.image_text import as_picture
from groupwise_selection.task_model.trained import kept


def embedded(config: ClipEmbedder, texts: Sequence[str], images: Sequence[Any]) -> np.ndarray:
    """Computes the rows that `ClipEmbedder` describes, an fp32 `[N, D]`, or reads those that were kept.

    Raises:
        ConfigError: transformers cannot load the folder, it holds no CLIP, or a picture cannot be read.
    """
    files = sorted(file for file in Path(config.path).iterdir() if file.is_file())
    key = {
        "model": [(file.name, file.stat().st_size, file.stat().st_mtime_ns) for file in files],
        "clip": config.share,
        "asked": [(text, repr(content(image))) for text, image in zip(texts, images, strict=True)],
    }
    folder = kept(
        key, 1, lambda: lambda folder: save_file({"v": _embedded(config, texts, images)}, folder / "v.safetensors")
    )
    return load_file(folder / "v.safetensors")["v"]


def _embedded(config: ClipEmbedder, texts: Sequence[str], images: Sequence[Any]) -> np.ndarray:
    try:
        arguments: dict[str, Any] = {"local_files_only": True, "trust_remote_code": False}
        with without_progress_bars():
            model: Any = AutoModel.from_pretrained(config.path, use_safetensors=True, dtype=torch.float32, **arguments)
        tokenizer: Any = AutoTokenizer.from_pretrained(config.path, **arguments)
        processor: Any = AutoImageProcessor.from_pretrained(config.path, **arguments)
    except (OSError, ValueError, RuntimeError, ImportError, KeyError) as error:
        reason = (str(error).strip().splitlines() or [type(error).__name__])[0][:300]
        raise ConfigError(f"embedder.path = {config.path!r}: transformers cannot load it: {reason}") from error
    if not hasattr(model, "get_image_features") or not hasattr(model, "get_text_features"):
        raise ConfigError(f"embedder.path = {config.path!r} holds a {type(model).__name__}; write the folder of a CLIP")
    rows = []
    for start in range(0, len(texts), config.batch_size):
        places = range(start, min(start + config.batch_size, len(texts)))
        pictures = [as_picture(images[place], f"question {texts[place]!r}") for place in places]
        limit = model.config.text_config.max_position_embeddings
        tokens = tokenizer([texts[place] for place in places], padding=True, truncation=True, max_length=limit)
        ids, mask = (torch.tensor(tokens[name]) for name in ("input_ids", "attention_mask"))
        with torch.inference_mode():
            pixels = processor(images=pictures, return_tensors="pt")["pixel_values"]
            found = [model.get_image_features(pixels), model.get_text_features(ids, attention_mask=mask)]
        parts = [each if isinstance(each, torch.Tensor) else each.pooler_output for each in found]
        weighted = zip(parts, (config.share, 1 - config.share), strict=True)
        rows.append(torch.cat([torch.nn.functional.normalize(part) * weight**0.5 for part, weight in weighted], 1))
    return torch.cat(rows).numpy()
