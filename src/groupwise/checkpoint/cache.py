"""A cache of results that depend only on their inputs, stored between runs under a hash of those inputs.

Training a task model twice with the same settings and the same version of the code gives the same model, so that the
second run reads the result of the first. An entry appears in one rename: readers never see a part of it, and of two
writers of the same entry one wins.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from groupwise.checkpoint.atomic import new_folder


def cache_folder() -> Path:
    """Returns `$GROUPWISE_CACHE`, or `~/.cache/groupwise` (below `$XDG_CACHE_HOME` where that is set).

    Example:
        >>> cache_folder().name != ""
        True
    """
    if configured_folder := os.environ.get("GROUPWISE_CACHE"):
        return Path(configured_folder)
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "groupwise"


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
