"""The weights of a model's files as they are stored, for a run that spreads them over processes.

A file that is loaded in its own dtype is mapped into memory: the processes of a machine share its pages, and the system
takes them back where memory is short. Loaded in another dtype, every process has a copy of its own, of all weights.
A run in shards therefore takes the stored weights, and each process converts those of its shards alone. What the model
computes is tried in the dtype of its files, in which no weight has to be converted.
"""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from pathlib import Path
from typing import Any

import torch
from huggingface_hub import hf_hub_download
from huggingface_hub.errors import EntryNotFoundError
from safetensors import safe_open
from torch import Tensor
from transformers import AutoConfig

from groupwise.causal_lm.backbone import Backbone
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
_WEIGHTS, _INDEX = "model.safetensors", "model.safetensors.index.json"


def load_stored(config: CausalLMConfig) -> LoadedLM | None:
    """Loads the model that `config` names on the CPU as `groupwise.causal_lm.loading.load` does, with its weights in
    the dtype of its files. All else is that of a model in the dtype asked for: buffers, the weights of an adapter.

    Args:
        config: folder or hub id, dtype, adapter.

    Returns:
        the model, with the dtypes that its shards are to have; None where little would be saved: most weights have the
        dtype asked for, or weights of two other ones, or of float16, would be converted.

    Raises:
        Exception: of any kind where this family of models cannot be put together so, beside the errors of `load`.

    Example:
        >>> from groupwise.causal_lm.config import SmallModelConfig
        >>> from groupwise.causal_lm.loading import save
        >>> from groupwise.causal_lm.cache import character_tokenizer, small_model
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
    files = _files(config.path, config.revision)
    tensors = stored_tensors(files)
    sizes: Counter[torch.dtype] = Counter()
    for shape, stored_dtype in tensors.values():
        sizes[stored_dtype] += math.prod(shape)
    others = sizes.keys() - {dtype}
    # The weights are judged by the dtype that they have until they are spread, and float16 cannot be trained.
    if len(others) != 1 or torch.float16 in others or sizes[dtype] > sizes.total() / 2:
        return None
    tokenizer = load_tokenizer(config.path, config.revision)
    (other,) = others
    stored: Any = load_model(config, other)
    tried = Backbone(stored)
    state = stand_ins({name: shape for name, (shape, stored_dtype) in tensors.items() if stored_dtype == other}, dtype)
    arguments: dict[str, Any] = {} if config.attention is None else {"attn_implementation": config.attention}
    with without_progress_bars():
        model: Any = type(stored).from_pretrained(
            None,
            config=AutoConfig.from_pretrained(config.path, revision=config.revision or "main", **NO_CODE),
            state_dict=state | _mapped(files, tensors.keys() - state.keys()),
            dtype=dtype,
            **arguments,
        )
    model.generation_config = stored.generation_config
    model.config._name_or_path = model.name_or_path = stored.name_or_path
    pairs = [
        (live, twin.detach())
        for live, twin in zip(model.parameters(), stored.parameters(), strict=True)
        if _stands_in(live)
    ]
    return prepared(model, tokenizer, config.dropout, config.lora, path=config.path, stored=pairs, tried=tried)


def stored_tensors(files: Iterable[Path]) -> dict[str, tuple[tuple[int, ...], torch.dtype]]:
    """Returns shape and dtype of the tensors in a model's files, by their names there; nothing where a file is not
    there, or holds anything but numbers of these four dtypes.

    Example:
        >>> import tempfile
        >>> from safetensors.torch import save_file
        >>> file = Path(tempfile.mkdtemp()) / "model.safetensors"
        >>> save_file({"head": torch.zeros(2, 1, dtype=torch.bfloat16)}, file)
        >>> stored_tensors([file])
        {'head': ((2, 1), torch.bfloat16)}
    """
    tensors: dict[str, tuple[tuple[int, ...], torch.dtype]] = {}
    for file in files:
        if not file.is_file():
            return {}
        with safe_open(file, "pt") as weights:
            for name in weights.keys():  # noqa: SIM118 (no mapping)
                tensor = weights.get_slice(name)
                if tensor.get_dtype() not in _DTYPES:
                    return {}
                tensors[name] = tuple(tensor.get_shape()), _DTYPES[tensor.get_dtype()]
    return tensors


def stand_ins(shapes: Mapping[str, tuple[int, ...]], dtype: torch.dtype) -> dict[str, Tensor]:
    """Returns tensors of some shapes in one dtype, which take no memory: all of their elements are one, and NaN.

    Example:
        >>> stand_ins({"head": (2, 3)}, torch.float32)["head"].untyped_storage().nbytes()
        4
    """
    return {name: torch.full((), math.nan, dtype=dtype).expand(shape) for name, shape in shapes.items()}


def _stands_in(parameter: Tensor) -> bool:
    """Returns whether a loaded weight is one of `stand_ins`.

    Raises:
        ValueError: the family makes one weight of several tensors, some of which are.
    """
    if parameter.untyped_storage().nbytes() == parameter.element_size() and parameter.isnan().all():
        return True
    if parameter.isnan().any():
        raise ValueError("a weight is NaN, or made of tensors of two dtypes")
    return False


def _mapped(files: Iterable[Path], names: Collection[str]) -> dict[str, Tensor]:
    """Returns some of the tensors of files, in pages of the files."""
    tensors: dict[str, Tensor] = {}
    for file in files:
        with safe_open(file, "pt") as weights:
            tensors |= {name: weights.get_tensor(name) for name in weights.keys() if name in names}  # noqa: SIM118 (no mapping)
    return tensors


def _files(path: str, revision: str | None) -> list[Path]:
    """Returns the files that hold a model's weights. Those of a name on the hub are fetched, as loading would.

    Raises:
        Exception: the hub cannot be reached, or has no such files.
    """

    def file(name: str) -> Path:
        if Path(path).is_dir():
            return Path(path) / name
        with without_progress_bars():
            return Path(hf_hub_download(path, name, revision=revision or "main"))

    try:
        if (single := file(_WEIGHTS)).is_file():
            return [single]
    except EntryNotFoundError:
        pass
    index = json.loads(file(_INDEX).read_text(encoding="utf-8"))
    return [file(name) for name in sorted(set(index["weight_map"].values()))]
