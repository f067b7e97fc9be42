"""Files that a person named: read whole, and only regular files of a size that one machine reads at once."""

from __future__ import annotations

import errno
import json
import os
import tomllib
from pathlib import Path
from typing import Any

from groupwise.config.errors import ConfigError
from groupwise.config.plain import check_dots, check_plain, why_unreadable

MOST_BYTES = 2**33
"""The most bytes of a file of data."""

MOST_TABLE_BYTES = 2**28
"""The most bytes of a configuration, a summary or a table of numbers."""


def check_file(path: Path, most: int = MOST_BYTES) -> None:
    """Refuses a file that cannot be read to its end: a pipe or a device may never end, and a file with a hole may claim
    more bytes than there is memory.

    Args:
        most: the most bytes that are read.

    Raises:
        OSError: the file is absent, is no regular file, is larger, or cannot be read; `strerror` states the reason, and
            `filename` the path.

    Example:
        >>> check_file(Path("/dev/zero"))
        Traceback (most recent call last):
        OSError: [Errno 22] is no file: '/dev/zero'
    """
    size = path.stat().st_size
    if not path.is_file():
        raise OSError(errno.EINVAL, "is no file", str(path))
    if size > most:
        raise OSError(
            errno.EFBIG, f"has {size / 2**20:.0f} MiB, more than the {most / 2**20:.0f} MiB that are read", str(path)
        )


def read_whole(path: Path, most: int = MOST_BYTES) -> bytes:
    """Returns the bytes of a file that `check_file` accepts.

    Args:
        most: the most bytes that are read.

    Raises:
        OSError: `check_file` refuses the file.
    """
    check_file(path, most)
    return path.read_bytes()


# Configuration files, read with errors that name the file and the line.


def _read(path: str | Path) -> str:
    path = Path(path)
    try:
        # Some editors write a byte order mark at the beginning of a file.
        return read_whole(path, MOST_TABLE_BYTES).decode("utf-8-sig")
    except FileNotFoundError:
        raise ConfigError(f"no such file: {path}") from None
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(
            f"{path}: cannot be read as text ({getattr(error, 'strerror', None) or error}); give a TOML or JSON file"
        ) from None


def read_toml(path: str | Path) -> dict[str, Any]:
    """Reads the table in a TOML file.

    Raises:
        ConfigError: the file is absent, unreadable or not TOML; the line is named.

    Example:
        >>> read_toml("nowhere.toml")
        Traceback (most recent call last):
        groupwise.config.errors.ConfigError: no such file: nowhere.toml
    """
    text = _read(path)
    check_dots(text, str(path))
    try:
        tree = tomllib.loads(text)
    except (ValueError, RecursionError) as error:
        raise ConfigError(f"{path}: not valid TOML: {why_unreadable(error)}") from None
    check_plain(tree, str(path))
    return tree


def read_json(path: str | Path) -> dict[str, Any]:
    """Reads the table in a JSON file, for example the `config.json` of a run.

    Raises:
        ConfigError: the file is absent, unreadable, not JSON, or not a table; the line is named.

    Example:
        >>> import tempfile
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     _ = (Path(folder) / "config.json").write_text('{"seed": 3}')
        ...     read_json(Path(folder) / "config.json")
        {'seed': 3}
    """
    text = _read(path)
    try:
        tree = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise ConfigError(f"{path}: not valid JSON: {why_unreadable(error)}") from None
    if not isinstance(tree, dict):
        raise ConfigError(f"{path}: holds {type(tree).__name__}, not a table of keys")
    check_plain(tree, str(path), config=False)
    return tree


# Files of people with one JSON object a line: an error names the line that is no object.


def read_json_lines(path: str | Path, key: str) -> list[tuple[str, dict[str, Any]]]:
    """Reads the objects, each with its place for errors; leaves out empty lines.

    Only a line feed ends a line: JSON allows every other separator inside a text.

    Args:
        key: the key of the configuration that names the file, for errors.

    Raises:
        ConfigError: the file is absent, empty or not UTF-8; or a line is no JSON, no object, or has a text that UTF-8
            cannot store.

    Example:
        >>> import tempfile
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     _ = (Path(folder) / "queries.jsonl").write_text('{"id": "a"}\\n\\n{"id": "b"}')
        ...     [
        ...         (place.rpartition(", ")[2], row)
        ...         for place, row in read_json_lines(Path(folder) / "queries.jsonl", "source.queries")
        ...     ]
        [('line 1', {'id': 'a'}), ('line 3', {'id': 'b'})]
    """
    path = Path(path)
    if not path.is_file():
        raise ConfigError(f"{key}: there is no file {str(path)!r} (working directory {str(Path.cwd())!r})")
    rows = []
    try:
        content = read_whole(path)
    except OSError as error:
        raise ConfigError(f"{key}: {str(path)!r} cannot be read: {error.strerror}") from None
    for number, line in enumerate(content.split(b"\n"), 1):
        place = f"{path}, line {number}"
        try:
            # Some editors write a byte order mark at the beginning of a file.
            text = line.decode("utf-8-sig" if number == 1 else "utf-8").strip()
            row = json.loads(text) if text else None
        except UnicodeDecodeError as error:
            raise ConfigError(f"{place}: is no UTF-8 ({error}); write the file in that encoding") from None
        except (ValueError, RecursionError) as error:
            raise ConfigError(f"{place}: is no JSON: {why_unreadable(error)}") from None
        if not text:
            continue
        if not isinstance(row, dict):
            raise ConfigError(f"{place}: is a {type(row).__name__}; write one JSON object a line")
        check_plain(row, place, config=False)
        rows.append((place, row))
    if not rows:
        raise ConfigError(f"{key}: {str(path)!r} is empty")
    return rows


def cache_folder() -> Path:
    """Returns `$GROUPWISE_CACHE`, or `~/.cache/groupwise` (below `$XDG_CACHE_HOME` where that is set).

    Example:
        >>> cache_folder().name != ""
        True
    """
    if configured_folder := os.environ.get("GROUPWISE_CACHE"):
        return Path(configured_folder)
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "groupwise"
