"""What a member is, in words: its text, its image, or the entries of its record."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any


def member_text(record: Mapping[str, Any], without: Collection[str] = ()) -> str:
    """Describes a member by its record: the text or image in it, or otherwise its entries.

    Args:
        record: as `Domain.describe` gave it, images perhaps written to files.
        without: names of entries that stand elsewhere already, such as the prompt's columns.

    Example:
        >>> member_text({"prompt": "list-0", "key": "list-0", "seed": 3, "speeds": [0.12345678, 2.0]}, ["seed"])
        'speeds [0.1235, 2]'
        >>> member_text({"prompt": "2 + 2", "text": "4"})
        '4'
    """
    for name in ("completion", "text", "image"):
        if name in record:
            value = record[name]
            return f"image, {value.shape[0]} x {value.shape[1]}" if hasattr(value, "shape") else str(value)
    entries = [f"{name} {_short(value)}" for name, value in record.items() if name not in {"prompt", "key", *without}]
    # A line is cut at its end, so that the longest entry comes last.
    return "; ".join(sorted(entries, key=len))


def _short(value: Any) -> str:
    if isinstance(value, list | tuple):
        return f"[{', '.join(map(_short, value))}]"
    return f"{value:.4g}" if isinstance(value, float) else str(value)
