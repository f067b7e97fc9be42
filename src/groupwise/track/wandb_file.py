"""What an offline file of Weights & Biases holds: records of protobuf in the framing of LevelDB's log."""

from __future__ import annotations

import json
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any

_HEADER = 7
"""Bytes before the first block's records, and before each record: `:W&B` with a magic number and a version; checksum, length and kind."""

_BLOCK = 32768
_WHOLE, _FIRST, _LAST = 1, 2, 4


def rows(path: Path) -> Iterator[dict[str, Any]]:
    """The rows that were logged, in order, as far as the file goes.

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
            row = {item.key or ".".join(item.nested_key): json.loads(item.value_json) for item in record.history.item}
            yield {"_step": record.history.step.num, **row}


def _records(data: bytes) -> Iterator[bytes]:
    """Records, put together where they were split between blocks; a record cut off at the end is left out."""
    place, parts = _HEADER, b""
    while place + _HEADER <= len(data):
        left = _BLOCK - place % _BLOCK
        _, length, kind = struct.unpack_from("<IHB", data, place)
        # What is left of a block is padding: no record begins in fewer bytes than its header, and none is of kind 0.
        if left < _HEADER or kind == 0:
            place += left
            continue
        part = data[place + _HEADER : place + _HEADER + length]
        if len(part) < length:
            return
        place += _HEADER + length
        parts = part if kind in (_WHOLE, _FIRST) else parts + part
        if kind in (_WHOLE, _LAST):
            yield parts
