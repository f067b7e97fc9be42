"""Configuration files, read with errors that name the file and the line."""

from __future__ import annotations

import json
import tomllib
from pathlib import Path
from typing import Any

from groupwise.config.errors import ConfigError


def _read(path: str | Path) -> str:
    path = Path(path)
    try:
        # Some editors begin a file with a mark of its encoding.
        return path.read_text(encoding="utf-8-sig")
    except FileNotFoundError:
        raise ConfigError(f"no such file: {path}") from None
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path}: cannot be read as text ({error}); give a TOML or JSON file") from None


def read_toml(path: str | Path) -> dict[str, Any]:
    """The table in a TOML file.

    Args:
        path: the file.

    Raises:
        ConfigError: the file is absent, unreadable or not TOML; the line is named.

    Example:
        >>> read_toml("nowhere.toml")
        Traceback (most recent call last):
        groupwise.config.errors.ConfigError: no such file: nowhere.toml
    """
    text = _read(path)
    try:
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise ConfigError(f"{path}: not valid TOML: {error}") from None


def read_json(path: str | Path) -> dict[str, Any]:
    """The table in a JSON file, such as the `config.json` of a run.

    Args:
        path: the file.

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
    except json.JSONDecodeError as error:
        raise ConfigError(f"{path}: not valid JSON: {error}") from None
    if not isinstance(tree, dict):
        raise ConfigError(f"{path}: holds {type(tree).__name__}, not a table of keys")
    return tree
