"""The weights of a model's files as they are stored, for a run that spreads them over processes.

A file that is loaded in its own dtype is mapped into memory: the processes of a machine share its pages, and the system
takes them back where memory is short. Loaded in another dtype, every process has a copy of its own, of all weights.
A run in shards therefore takes the stored weights, and each process converts those of its shards alone.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from huggingface_hub import try_to_load_from_cache
from safetensors import safe_open
from torch import Tensor
from transformers import AutoConfig

from groupwise.causal_lm.config import CausalLMConfig
from groupwise.causal_lm.loading import (
    LoadedLM,
    load_model,
    load_tokenizer,
    prepared,
    without_progress_bars,
)
from groupwise.causal_lm.model_folder import NO_CODE, checked

_DTYPES = {"BF16": torch.bfloat16, "F16": torch.float16, "F32": torch.float32, "F64": torch.float64}
_INDEX = "model.safetensors.index.json"


def load_stored(config: CausalLMConfig) -> LoadedLM | None:
    """Loads the model that `config` names on the CPU as `groupwise.causal_lm.loading.load` does, with its weights in
    the dtype of its files. All else is that of a model in the dtype asked for: buffers, the weights of an adapter.

    Args:
        config: folder or hub id, dtype, adapter.

    Returns:
        the model, with the dtypes that its shards are to have; None where nothing would be saved (the files have the
        dtype asked for) or files of several dtypes would be rounded.

    Raises:
        Exception: of any kind where this family of models does not compute with weights of one dtype and buffers of
            another, beside the errors of `load`.

    Example:
        >>> from groupwise.causal_lm.config import SmallModelConfig
        >>> from groupwise.causal_lm.loading import save
        >>> from groupwise.causal_lm.scratch import character_tokenizer, small_model
        >>> import tempfile
        >>> folder, tokenizer = tempfile.mkdtemp(), character_tokenizer("ab")
        >>> model = small_model(SmallModelConfig(hidden_size=8, num_heads=2), tokenizer, 0, torch.bfloat16)
        >>> save(model, tokenizer, folder)
        >>> loaded = load_stored(CausalLMConfig(path=folder, dtype="float32"))
        >>> loaded.backbone.head.weight.dtype, loaded.dtypes[loaded.backbone.head.weight]
        (torch.bfloat16, torch.float32)
    """
    if config.dtype == "auto":
        return None
    config, dtype = checked(config), getattr(torch, config.dtype)
    tensors = stored_tensors(config.path, config.revision)
    dtypes = {stored for _, stored in tensors.values()}
    if len(dtypes) != 1 or dtypes == {dtype}:
        return None
    tokenizer = load_tokenizer(config.path, config.revision)
    stored: Any = load_model(config, dtypes.pop())
    arguments: dict[str, Any] = {} if config.attention is None else {"attn_implementation": config.attention}
    with without_progress_bars():
        model: Any = type(stored).from_pretrained(
            None,
            config=AutoConfig.from_pretrained(config.path, revision=config.revision or "main", **NO_CODE),
            state_dict=stand_ins(tensors, dtype),
            dtype=dtype,
            **arguments,
        )
    model.generation_config = stored.generation_config
    model.config._name_or_path = model.name_or_path = stored.name_or_path
    pairs = [(live, twin.detach()) for live, twin in zip(model.parameters(), stored.parameters(), strict=True)]
    return prepared(model, tokenizer, config.dropout, config.lora, path=config.path, stored=pairs)


def stored_tensors(path: str, revision: str | None = None) -> dict[str, tuple[tuple[int, ...], torch.dtype]]:
    """Returns shape and dtype of the tensors in a model's files, by their names there; nothing where the files are not
    on this machine, or hold anything but numbers of these four dtypes.

    Args:
        path: a local folder, or a hub id that was fetched before.
        revision: of a hub id.

    Example:
        >>> import tempfile
        >>> from safetensors.torch import save_file
        >>> folder = tempfile.mkdtemp()
        >>> save_file({"head": torch.zeros(2, 1, dtype=torch.bfloat16)}, f"{folder}/model.safetensors")
        >>> stored_tensors(folder)
        {'head': ((2, 1), torch.bfloat16)}
    """
    tensors: dict[str, tuple[tuple[int, ...], torch.dtype]] = {}
    for file in _files(path, revision):
        if not file.is_file():
            return {}
        with safe_open(file, "pt") as weights:
            for name in weights.keys():  # noqa: SIM118 (no mapping)
                tensor = weights.get_slice(name)
                if tensor.get_dtype() not in _DTYPES:
                    return {}
                tensors[name] = tuple(tensor.get_shape()), _DTYPES[tensor.get_dtype()]
    return tensors


def _files(path: str, revision: str | None) -> list[Path]:
    folder = Path(path)
    if not folder.is_dir():
        config = try_to_load_from_cache(path, "config.json", revision=revision or "main")
        if not isinstance(config, str):
            return []
        folder = Path(config).parent
    index = folder / _INDEX
    if not index.is_file():
        return [folder / "model.safetensors"]
    return [folder / name for name in sorted(set(json.loads(index.read_text())["weight_map"].values()))]


def stand_ins(tensors: Mapping[str, tuple[tuple[int, ...], torch.dtype]], dtype: torch.dtype) -> dict[str, Tensor]:
    """Returns tensors of the shapes of others in one dtype, which take no memory: all of their elements are one.

    Example:
        >>> stand_ins({"head": ((2, 3), torch.bfloat16)}, torch.float32)["head"].untyped_storage().nbytes()
        4
    """
    return {name: torch.zeros((), dtype=dtype).expand(shape) for name, (shape, _) in tensors.items()}
