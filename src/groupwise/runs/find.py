"""The run folders that a person means by a path."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from pathlib import Path

from groupwise.config import ConfigError
from groupwise.config.files import MOST_TABLE_BYTES, read_whole
from groupwise.runs.folder import RunFolder
from groupwise.runs.natural import natural

DEPTH = 3
"""How far below a named folder runs are looked for: a comparison has them two levels down."""


def is_run(folder: Path) -> bool:
    """Whether a folder holds a run, or what is left of one. A model's folder has a `config.json` as well, and is none.

    Args:
        folder: any path.

    Example:
        >>> is_run(Path("nowhere"))
        False
    """
    run = RunFolder(folder)
    return run.metrics.is_file() or run.environment.is_file() or (run.is_run and run.rollouts.is_dir())


def find_runs(paths: Iterable[Path]) -> list[Path]:
    """The run folders among `paths` and below them, each once, in the order given; a comparison's in the order of its
    variants, other folders' by name.

    A run's own controls and models are part of it and are not found apart from it.

    Args:
        paths: run folders, comparisons, or folders of either.

    Returns:
        at least one folder.

    Raises:
        ConfigError: a path does not exist, or holds no run.

    Example:
        >>> find_runs([Path("nowhere")])
        Traceback (most recent call last):
        groupwise.config.errors.ConfigError: no such folder: nowhere; runs lie in runs/ unless --out said otherwise
    """
    found: dict[Path, Path] = {}
    for path in paths:
        if not path.is_dir():
            raise ConfigError(f"no such folder: {path}; runs lie in runs/ unless --out said otherwise")
        below = _below([path], DEPTH)
        if not below:
            raise ConfigError(
                f"{path} holds no run: no metrics.jsonl in it or up to {DEPTH} folders down; give a folder that"
                " `groupwise train` printed"
            )
        for run in below:
            found.setdefault(run.resolve(), run)
    return list(found.values())


def _below(folders: Sequence[Path], depth: int) -> list[Path]:
    found: list[Path] = []
    for folder in folders:
        if is_run(folder):
            found.append(folder)
        elif depth:
            children = sorted(
                (child for child in folder.iterdir() if child.is_dir() and not child.name.startswith(".")), key=natural
            )
            order = _order(folder)
            found += _below(sorted(children, key=lambda child: order.get(child.name, len(order))), depth - 1)
    return found


def _order(folder: Path) -> dict[str, int]:
    """The places of a comparison's variants; nothing where it is none, or damaged."""
    try:
        variants = json.loads(read_whole(folder / "comparison.json", MOST_TABLE_BYTES))["variants"]
        return {str(name): place for place, name in enumerate(variants)}
    except (OSError, ValueError, TypeError, KeyError, RecursionError):
        return {}
