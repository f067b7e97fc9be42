"""Files with one JSON object a line, of people: every line must be one, and an error names it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from groupwise.config.errors import ConfigError
from groupwise.config.files import read_whole
from groupwise.config.plain import check_plain, why_unreadable


def read_json_lines(path: str | Path, key: str) -> list[tuple[str, dict[str, Any]]]:
    """Each line's place, for errors, and its object; empty lines are left out.

    A line ends at a line feed and nowhere else: JSON allows every other separator inside a text.

    Args:
        path: the file.
        key: the key of the configuration that names it, for errors.

    Raises:
        ConfigError: the file is absent, holds nothing, or is no UTF-8; a line that is no JSON, or no object, or holds a
            text that UTF-8 cannot.

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
    found = []
    try:
        content = read_whole(path)
    except OSError as error:
        raise ConfigError(f"{key}: {str(path)!r} cannot be read: {error.strerror}") from None
    for number, line in enumerate(content.split(b"\n"), 1):
        where = f"{path}, line {number}"
        try:
            # Some editors begin a file with a mark of its encoding.
            text = line.decode("utf-8-sig" if number == 1 else "utf-8").strip()
            row = json.loads(text) if text else None
        except UnicodeDecodeError as error:
            raise ConfigError(f"{where}: is no UTF-8 ({error}); write the file in that encoding") from None
        except (ValueError, RecursionError) as error:
            raise ConfigError(f"{where}: is no JSON: {why_unreadable(error)}") from None
        if not text:
            continue
        if not isinstance(row, dict):
            raise ConfigError(f"{where}: is a {type(row).__name__}; write one JSON object a line")
        check_plain(row, where, config=False)
        found.append((where, row))
    if not found:
        raise ConfigError(f"{key}: {str(path)!r} is empty")
    return found
