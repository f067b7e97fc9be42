"""Notes on the adapters that processes of this machine have opened, so that those of a killed one can be freed."""

from __future__ import annotations

import json
import os
import platform
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from groupwise.checkpoint.cache import cache_folder


def note(address: str, model_id: str) -> None:
    """Writes that this process has opened an adapter; a folder that cannot be written is no error.

    Args:
        address: of the server.
        model_id: of the adapter, as the server names it.
    """
    table = {"address": address, "model_id": model_id, "host": platform.node(), "process": os.getpid()}
    with suppress(OSError):
        path = _path(model_id)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(table), encoding="utf-8")


def forget(model_id: str) -> None:
    """Removes the note of an adapter that is unloaded."""
    with suppress(OSError):
        _path(model_id).unlink(missing_ok=True)


def orphans(address: str) -> Iterator[str]:
    """Yields the adapters of this server whose processes on this machine have ended without unloading them."""
    for path in sorted(_folder().glob("*.json")):
        with suppress(OSError, ValueError, LookupError, TypeError):
            table = json.loads(path.read_text(encoding="utf-8"))
            is_here = (table["address"], table["host"]) == (address, platform.node())
            if is_here and not _is_alive(int(table["process"])):
                yield str(table["model_id"])


def _folder() -> Path:
    return cache_folder() / "tinker"


def _path(model_id: str) -> Path:
    return _folder() / f"{''.join(letter if letter.isalnum() else '_' for letter in model_id)}.json"


def _is_alive(process: int) -> bool:
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except PermissionError:  # It is another user's.
        return True
    return True
