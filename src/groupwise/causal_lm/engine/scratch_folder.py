"""Folders that a run shares with its servers, in memory where the weights fit twice."""

from __future__ import annotations

import contextlib
import os
import shutil
import tempfile
from pathlib import Path
from typing import Any

_MEMORY = Path("/dev/shm")
_PREFIX = "groupwise-"


def scratch_folder(kind: str, model: Any, parent: Path | None = None) -> tempfile.TemporaryDirectory[str]:
    """Makes a folder that is removed when it is closed, and removes those that killed runs of this machine left behind.

    Args:
        kind: a word for its name.
        model: the weights it has to hold twice.
        parent: where to; a folder in memory where omitted, or that of temporary files where memory has no room.
    """
    if parent is not None:
        parent.mkdir(parents=True, exist_ok=True)
    place = parent or _memory_folder(model)
    for path in place.glob(f"{_PREFIX}{kind}-*"):
        owner = path.name.removeprefix(f"{_PREFIX}{kind}-").partition("-")[0]
        with contextlib.suppress(OSError, ValueError):
            if parent is None and path.stat().st_uid == os.getuid() and not _is_alive(int(owner)):
                shutil.rmtree(path, ignore_errors=True)
    return tempfile.TemporaryDirectory(prefix=f"{_PREFIX}{kind}-{os.getpid()}-", dir=place, ignore_cleanup_errors=True)


def _is_alive(process: int) -> bool:
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True


def _memory_folder(model: Any) -> Path:
    size = sum(tensor.numel() * tensor.element_size() for tensor in model.state_dict().values())
    has_room = _MEMORY.is_dir() and shutil.disk_usage(_MEMORY).free > 2.2 * size
    return _MEMORY if has_room else Path(tempfile.gettempdir())
