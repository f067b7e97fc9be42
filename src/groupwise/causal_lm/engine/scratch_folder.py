"""Folders that a run shares with its servers, in memory where the weights fit twice."""

from __future__ import annotations

import contextlib
import os
import shutil
import tempfile
import time
from pathlib import Path
from typing import Any, final

from groupwise import file_lock

_MEMORY = Path("/dev/shm")
_PREFIX = "groupwise-"


@final
class ScratchFolder(tempfile.TemporaryDirectory[str]):
    """A temporary folder that is locked while its process lives. Processes of other containers, to whom its number says
    nothing, see by that whether it is in use.
    """

    def __init__(self, prefix: str, place: Path) -> None:
        super().__init__(prefix=prefix, dir=place, ignore_cleanup_errors=True)
        self.descriptor = os.open(self.name, os.O_RDONLY)
        file_lock.take(self.descriptor, shared=True)

    def cleanup(self) -> None:
        """Removes the folder; a second call does nothing."""
        super().cleanup()
        if self.descriptor >= 0:
            os.close(self.descriptor)
            self.descriptor = -1


def scratch_folder(kind: str, model: Any, parent: Path | None = None) -> ScratchFolder:
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
            if parent is None and path.stat().st_uid == os.getuid() and not _is_alive(int(owner)) and _is_left(path):
                shutil.rmtree(path, ignore_errors=True)
    return ScratchFolder(f"{_PREFIX}{kind}-{os.getpid()}-", place)


def _is_left(path: Path) -> bool:
    """Tests that nobody holds a folder. One of a minute ago may be about to be locked."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        return time.time() - path.stat().st_mtime > 60 and file_lock.take(descriptor)
    finally:
        os.close(descriptor)


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
    # A container may have a /dev/shm that nobody may write.
    is_writable = _MEMORY.is_dir() and os.access(_MEMORY, os.W_OK | os.X_OK)
    return _MEMORY if is_writable and shutil.disk_usage(_MEMORY).free > 2.2 * size else Path(tempfile.gettempdir())
