"""JSON objects, one a line, read as far as they go."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, final

from groupwise.config.files import check_file

_MOST_DIGITS = 300
"""Of a whole number that a float can hold."""


@final
@dataclass(frozen=True)
class Lines:
    """What a file of JSON lines holds.

    Args:
        rows: the objects, in order.
        remarks: what could not be read, in sentences.
    """

    rows: list[dict[str, Any]]
    remarks: list[str]


def read_lines(path: Path) -> Lines:
    """Every whole object of a file, and a sentence for what is missing; it never raises.

    A last line without its end that is no whole object is the one being written now, or the one a crash cut in half.

    Args:
        path: of the file; one that is not there holds nothing.

    Returns:
        the objects and the remarks.

    Example:
        >>> import tempfile
        >>> path = Path(tempfile.mkdtemp()) / "metrics.jsonl"
        >>> _ = path.write_text('{"step": 1}\\n[2]\\n{"step": 3, "kl": NaN}\\n{"st')
        >>> read_lines(path).rows
        [{'step': 1}, {'step': 3, 'kl': None}]
        >>> read_lines(path).remarks
        ['metrics.jsonl: line 2 is no JSON object and is left out', 'metrics.jsonl: the last line is cut off and is left out']
    """  # noqa: E501
    remarks: list[str] = []
    return Lines(list(each_line(path, remarks)), remarks)


def each_line(path: Path, remarks: list[str]) -> Iterator[dict[str, Any]]:
    """The objects of `read_lines` one after the other, for files that should not be in memory at once.

    Args:
        path: of the file.
        remarks: sentences are added here when the file has been read; broken lines in one sentence.

    Yields:
        one object a line; `NaN` and infinities are `None`.

    Example:
        >>> said = []
        >>> list(each_line(Path("nowhere.jsonl"), said)), said
        ([], ['nowhere.jsonl is not there'])
    """
    broken: list[int] = []
    cut = False
    try:
        check_file(path)
        with path.open("rb") as file:
            for number, line in enumerate(file, start=1):
                if not line.strip():
                    continue
                try:
                    row = parse(line)
                # Brackets nested a thousand deep are damage too.
                except (ValueError, RecursionError):
                    row = None
                if isinstance(row, dict):
                    yield row
                elif line.endswith(b"\n"):
                    broken.append(number)
                else:
                    cut = True
    except FileNotFoundError:
        remarks.append(f"{path.name} is not there")
    except OSError as error:
        remarks.append(f"{path.name} cannot be read ({error.strerror})")
    if broken:
        remarks.append(f"{path.name}: {_named(broken)} and {'is' if len(broken) == 1 else 'are'} left out")
    if cut:
        remarks.append(f"{path.name}: the last line is cut off and is left out")


def parse(content: bytes) -> Any:
    """JSON as a run folder holds it: what is no finite number, or beyond all floating-point ones, is `None`.

    Args:
        content: UTF-8; what is none is replaced.

    Raises:
        ValueError: it is no JSON.
        RecursionError: it is nested too deep.

    Example:
        >>> parse(b"[NaN, 1e999, 12, 1" + b"0" * 400 + b"]")
        [None, None, 12, None]
    """

    def real(text: str) -> float | None:
        return number if math.isfinite(number := float(text)) else None

    def whole(text: str) -> int | None:
        return int(text) if len(text) < _MOST_DIGITS else None

    return json.loads(
        content.decode("utf-8", errors="replace"), parse_constant=lambda _: None, parse_float=real, parse_int=whole
    )


def _named(broken: list[int]) -> str:
    if len(broken) == 1:
        return f"line {broken[0]} is no JSON object"
    shown = ", ".join(map(str, broken[:5])) + (f" and {len(broken) - 5} more" if len(broken) > 5 else "")
    return f"lines {shown} are no JSON objects"
