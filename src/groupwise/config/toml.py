"""Configuration files, read with errors that name the file and the line."""

from __future__ import annotations

import json
import tomllib
from pathlib import Path
from typing import Any

from groupwise.config.errors import ConfigError
from groupwise.config.files import MOST_TABLE_BYTES, read_whole
from groupwise.config.plain import check_dots, check_plain, why_unreadable


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
