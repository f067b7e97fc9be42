"""Model folders as a server reads them."""

from __future__ import annotations

import copy
import json
from pathlib import Path
from typing import Any

from safetensors.torch import load_file, save_file

from groupwise.causal_lm.loading import save


def write_served(model: Any, tokenizer: Any, folder: Path, *, untie: bool = False) -> None:
    """Writes a plain folder whose weights name the head also where it is tied to the embedding, so that servers which
    keep a head of their own read it again.

    Args:
        model: the trained model; an adapter is merged into the weights.
        tokenizer: saved beside it.
        folder: made here.
        untie: makes the folder say that its head is not tied: vLLM on a CPU reads a tied head once and never again.
    """
    save(model, tokenizer, folder)
    weights, name = folder / "model.safetensors", head_name(model)
    # A model in several files is written by transformers, with an index; it stays as it is.
    if name is None or not weights.is_file():
        return
    tensors = load_file(weights)
    if name in tensors:
        return
    tensors[name] = model.get_output_embeddings().weight.detach().cpu().clone()
    save_file(tensors, weights, metadata={"format": "pt"})
    if untie:
        file = folder / "config.json"
        file.write_text(json.dumps({**json.loads(file.read_text()), "tie_word_embeddings": False}, indent=2))


def head_name(model: Any) -> str | None:
    """Returns the name of the head's weight in the base model; `None` where the model has no output embedding."""
    base = model.get_base_model() if hasattr(model, "peft_config") else model
    head = base.get_output_embeddings()
    return next((f"{name}.weight" for name, module in base.named_modules() if module is head), None)


def without_adapter(model: Any) -> Any:
    """Returns a copy of an adapter's base model; the model itself where it has no adapter."""
    return copy.deepcopy(model).unload() if hasattr(model, "peft_config") else model
