"""Results that depend only on their inputs, stored between runs under a name that is a hash of those inputs.

A trained task model is the same every time its settings and the version of its training are; the second run reads the
result of the first. Entries appear in one rename, so readers never see half of one, and two writers of the same entry
leave one of the two.
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
    """`$GROUPWISE_CACHE`, or `~/.cache/groupwise` (below `$XDG_CACHE_HOME` where that is set).

    Example:
        >>> cache_folder().name != ""
        True
    """
    if named := os.environ.get("GROUPWISE_CACHE"):
        return Path(named)
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "groupwise"


def content_key(inputs: Mapping[str, Any]) -> str:
    """Hash of JSON-able inputs; the order of keys does not matter.

    Args:
        inputs: all that the result depends on.

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
        root: the folder; unset takes `cache_folder()`.

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
        """The entry's folder, or `None`.

        Args:
            kind: of entry.
            key: hash of what it depends on.
        """
        path = self.root / kind / key
        return path if path.is_dir() else None

    def put(self, kind: str, key: str, write: Callable[[Path], object]) -> Path:
        """Lets `write` fill a new entry; where another writer was first, its entry stays.

        Args:
            kind: of entry.
            key: hash of what it depends on.
            write: fills the folder it is given.

        Returns:
            the entry's folder.

        Raises:
            StorageError: it could not be written. A cache is a convenience: callers say so and go on.
        """
        path = self.root / kind / key
        with new_folder(path) as partial:
            write(partial)
        return path
