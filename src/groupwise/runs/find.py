"""The run folders that a person means by a path."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path

from groupwise.config import ConfigError
from groupwise.runs.natural import natural

DEPTH = 3
"""How far below a named folder runs are looked for: a comparison has them two levels down."""

_MARKS = ("metrics.jsonl", "environment.json")


def is_run(folder: Path) -> bool:
    """Whether a folder holds a run, or what is left of one. A model's folder has a `config.json` as well, and is none.

    Args:
        folder: any path.

    Example:
        >>> is_run(Path("nowhere"))
        False
    """
    return any((folder / name).is_file() for name in _MARKS) or ((folder / "config.json").is_file() and (folder / "rollouts").is_dir())


def find_runs(paths: Iterable[Path]) -> list[Path]:
    """The run folders among `paths` and below them, each once, in the order given; inside a folder by name, numbers by size.

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
                f"{path} holds no run: no metrics.jsonl in it or {DEPTH} folders down; give the folder that `groupwise train` or `groupwise compare` printed"
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
            children = [child for child in folder.iterdir() if child.is_dir() and not child.name.startswith(".")]
            found += _below(sorted(children, key=natural), depth - 1)
    return found
