"""Files of people with one JSON object a line: an error names the line that is no object."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from groupwise.config.errors import ConfigError
from groupwise.config.files import read_whole
from groupwise.config.plain import check_plain, why_unreadable


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
