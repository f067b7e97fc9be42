"""Nested records of tensors and plain values, as one safetensors file and one JSON file. Tensors that are sharded over
several processes are a folder of safetensors files next to them.

Dictionaries (with any plain key), lists, tuples, numbers, strings, booleans, `None`, bytes and tensors survive exactly,
bit for bit: floats through Python's shortest repr, infinities and NaN by name, integer keys (an optimiser's state has
them) as pairs. No pickle: loading a checkpoint never runs code.
"""

import hashlib
import json
import math
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save_file

from groupwise.checkpoint.atomic import new_folder
from groupwise.config.files import cache_folder
from groupwise.learner.shards import StoredTensor, is_sharded, write_shards

_TENSORS, _VALUES = "tensors.safetensors", "values.json"
FILES = frozenset({_TENSORS, _VALUES})
"""The names of the files in which a record is stored."""

SHARDS = "shards"
"""The name of the folder of sharded tensors, where a record has any."""


def save_tree(folder: Path, tree: Any, *, first: bool = True) -> list[str]:
    """Writes a nested record into an existing folder. Every process must call this function where tensors are sharded.

    Args:
        folder: receives `tensors.safetensors`, `values.json` and, for sharded tensors, `shards/`.
        tree: nested dictionaries, lists and tuples of tensors and plain values.
        first: whether this process writes what is not sharded.

    Returns:
        the names of the files that this process wrote.

    Raises:
        TypeError: a value is of another type; the message gives its path in the record.

    Example:
        >>> import tempfile
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     save_tree(Path(folder), {"state": {0: {"step": torch.tensor(3.0)}}, "betas": (0.9, 0.999)})
        ...     load_tree(Path(folder))
        ['tensors.safetensors', 'values.json']
        {'state': {0: {'step': tensor(3.)}}, 'betas': (0.9, 0.999)}
    """
    names = []
    if shards := shards_of(tree):
        names += [f"{SHARDS}/{name}" for name in write_shards(folder / SHARDS, shards)]
    if first:
        tensors: dict[str, torch.Tensor] = {}
        values = _encode(tree, "", tensors)
        save_file(tensors, folder / _TENSORS)
        (folder / _VALUES).write_text(json.dumps(values, allow_nan=False))
        names += sorted(FILES)
    return names


def load_tree(folder: Path) -> Any:
    """Reads the nested record that `save_tree` wrote into a folder; its tensors are on the CPU, and those that were
    sharded are `StoredTensor`, which are read by `fill` or `read_whole`.

    Example:
        >>> import tempfile
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     _ = save_tree(Path(folder), [1, float("inf"), (None, b"a")])
        ...     load_tree(Path(folder))
        [1, inf, (None, b'a')]
    """
    return _decode(json.loads((folder / _VALUES).read_text()), load_file(folder / _TENSORS), folder / SHARDS)


def shards_of(tree: Any, path: str = "") -> dict[str, Any]:
    """Returns the sharded tensors of a nested record by their path in it, the same paths on every process.

    Args:
        path: the path of the record itself.

    Example:
        >>> shards_of({"a": [torch.ones(1)]})
        {}
    """
    if is_sharded(tree):
        return {path: tree}
    children = tree.items() if isinstance(tree, dict) else enumerate(tree) if isinstance(tree, list | tuple) else ()
    return {name: tensor for key, child in children for name, tensor in shards_of(child, f"{path}/{key}").items()}


def _encode(value: Any, path: str, tensors: dict[str, torch.Tensor]) -> Any:
    if is_sharded(value):
        return {"$shards": [path, list(value.shape), str(value.dtype).removeprefix("torch.")]}
    if isinstance(value, torch.Tensor):
        # A copy: safetensors refuses tensors that share memory.
        tensors[path] = value.detach().cpu().clone(memory_format=torch.contiguous_format)
        return {"$tensor": path}
    if value is None or isinstance(value, bool | int | str):
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else {"$float": repr(value)}
    if isinstance(value, bytes):
        return {"$bytes": value.hex()}
    if isinstance(value, dict):
        if all(isinstance(key, str) and not key.startswith("$") for key in value):
            return {key: _encode(child, f"{path}/{key}", tensors) for key, child in value.items()}
        return {
            "$items": [
                [_encode(key, f"{path}/key", tensors), _encode(child, f"{path}/{key}", tensors)]
                for key, child in value.items()
            ]
        }
    if isinstance(value, list | tuple):
        children = [_encode(child, f"{path}/{index}", tensors) for index, child in enumerate(value)]
        return children if isinstance(value, list) else {"$tuple": children}
    raise TypeError(
        f"checkpoint entry {path or '/'} is a {type(value).__name__}; it must be a tensor, a plain value or a nest of"
        " them"
    )


def _decode(value: Any, tensors: dict[str, torch.Tensor], shards: Path) -> Any:
    if isinstance(value, list):
        return [_decode(child, tensors, shards) for child in value]
    if not isinstance(value, dict):
        return value
    if len(value) == 1:
        ((tag, content),) = value.items()
        match tag:
            case "$tensor":
                return tensors[content]
            case "$shards":
                name, shape, dtype = content
                return StoredTensor(shards, name, torch.Size(shape), getattr(torch, dtype))
            case "$float":
                return float(content)
            case "$bytes":
                return bytes.fromhex(content)
            case "$tuple":
                return tuple(_decode(child, tensors, shards) for child in content)
            case "$items":
                return {_decode(key, tensors, shards): _decode(child, tensors, shards) for key, child in content}
    return {key: _decode(child, tensors, shards) for key, child in value.items()}


# A cache of results that depend only on their inputs, stored between runs under a hash of those inputs.
#
# Training a task model twice with the same settings and the same version of the code gives the same model, so that
# the second run reads the result of the first. An entry appears in one rename: readers never see a part of it, and of
# two writers of the same entry one wins.


def content_key(inputs: Mapping[str, Any]) -> str:
    """Returns the hash of inputs that JSON can hold; the order of keys does not matter.

    Args:
        inputs: all values on which the cached result depends.

    Returns:
        32 hexadecimal digits.

    Example:
        >>> content_key({"a": 1, "b": 2}) == content_key({"b": 2, "a": 1})
        True
    """
    return hashlib.sha256(json.dumps(inputs, sort_keys=True, separators=(",", ":")).encode()).hexdigest()[:32]


class Cache:
    """A folder of entries by kind and key.

    Args:
        root: folder of the cache; unset takes `cache_folder()`.

    Example:
        >>> import tempfile
        >>> cache = Cache(Path(tempfile.mkdtemp()))
        >>> cache.get("task_model", "abc") is None
        True
        >>> _ = cache.put("task_model", "abc", lambda folder: (folder / "note.txt").write_text("done"))
        >>> (cache.get("task_model", "abc") / "note.txt").read_text()
        'done'
    """

    def __init__(self, root: Path | None = None) -> None:
        self.root = root or cache_folder()

    def get(self, kind: str, key: str) -> Path | None:
        """Returns the folder of an entry, or `None`.

        Args:
            kind: name of the kind of entry, such as `task_model`.
            key: hash of the entry's inputs, as `content_key` returns it.
        """
        path = self.root / kind / key
        return path if path.is_dir() else None

    def put(self, kind: str, key: str, write: Callable[[Path], object]) -> Path:
        """Lets `write` fill a new entry; where another writer was first, its entry stays.

        Args:
            kind: name of the kind of entry, such as `task_model`.
            key: hash of the entry's inputs, as `content_key` returns it.
            write: writes the entry into the folder that it receives.

        Returns:
            the entry's folder.

        Raises:
            StorageError: the entry could not be written. Callers go on without the cache and report that.
        """
        path = self.root / kind / key
        with new_folder(path) as partial:
            write(partial)
        return path
