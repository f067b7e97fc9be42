"""The content of an offline file of Weights & Biases: records of protobuf in the framing of LevelDB's log."""

from __future__ import annotations

import json
import os
import struct
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

_HEADER = 7
"""Bytes before the first block's records, and before each record: `:W&B` with a magic number and a version; checksum,
length and kind.
"""

_BLOCK = 32768
_WHOLE, _FIRST, _LAST = 1, 2, 4


def rows(path: Path) -> Iterator[dict[str, Any]]:
    """Yields the logged rows in order, as far as the file goes.

    Args:
        path: `RUN/wandb/offline-run-TIME-ID/run-ID.wandb`.

    Yields:
        name -> value, `_step` among them; nested names are joined by dots.

    Raises:
        ImportError: W&B is not installed.
    """
    from wandb.proto import wandb_internal_pb2 as messages  # pyright: ignore[reportMissingImports]

    for data in _records(path.read_bytes()):
        record = messages.Record()  # pyright: ignore[reportAttributeAccessIssue]
        record.ParseFromString(data)
        if record.WhichOneof("record_type") == "history":
            row = {
                value.key or ".".join(value.nested_key): json.loads(value.value_json) for value in record.history.item
            }
            yield {"_step": record.history.step.num, **row}


def wait_until_written(path: Path, seconds: float = 30.0) -> bool:
    """Waits for W&B's own process, which may still write when the run that it serves has ended or was killed.

    Args:
        path: of an offline file.
        seconds: how long at most.

    Returns:
        whether nobody writes to it any more; where the system does not say who has a file open (no `/proc`), it is
        taken for written.

    Example:
        >>> wait_until_written(Path("nowhere.wandb"))
        True
    """
    end = time.monotonic() + seconds
    while _is_open_for_writing(path.resolve()):
        if time.monotonic() > end:
            return False
        time.sleep(0.05)
    return True


def _is_open_for_writing(path: Path) -> bool:
    for descriptor in Path("/proc").glob("[0-9]*/fd/*"):
        # A process that ends while we look, or another person's.
        try:
            if os.readlink(descriptor) == str(path):
                descriptor_info = (descriptor.parents[1] / "fdinfo" / descriptor.name).read_text()
                if int(descriptor_info.split("flags:")[1].split()[0], 8) & os.O_ACCMODE != os.O_RDONLY:
                    return True
        except (OSError, IndexError):
            continue
    return False


def _records(data: bytes) -> Iterator[bytes]:
    """Yields records, joined where they were split between blocks; a record cut off at the end is left out."""
    place, fragments = _HEADER, b""
    while place + _HEADER <= len(data):
        left = _BLOCK - place % _BLOCK
        _, length, kind = struct.unpack_from("<IHB", data, place)
        # What is left of a block is padding: no record begins in fewer bytes than its header, and none is of kind 0.
        if left < _HEADER or kind == 0:
            place += left
            continue
        fragment = data[place + _HEADER : place + _HEADER + length]
        if len(fragment) < length:
            return
        place += _HEADER + length
        fragments = fragment if kind in (_WHOLE, _FIRST) else fragments + fragment
        if kind in (_WHOLE, _LAST):
            yield fragments
