"""The run folders that a person means by a path."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from pathlib import Path

from groupwise.config import ConfigError
from groupwise.config.files import MOST_TABLE_BYTES, read_whole
from groupwise.runs.folder import RunFolder
from groupwise.runs.natural_order import natural

DEPTH = 3
"""The number of folder levels that are searched for runs: those of a comparison lie two levels down."""


def is_run(folder: Path) -> bool:
    """Returns whether a folder holds a run, or the remains of a run. A model's folder has a `config.json` as well, but
    holds no run.

    Example:
        >>> is_run(Path("nowhere"))
        False
    """
    run = RunFolder(folder)
    return run.metrics.is_file() or run.environment.is_file() or (run.is_run and run.rollouts.is_dir())


def find_runs(paths: Iterable[Path], *, warm_ups: bool = False) -> list[Path]:
    """Returns the run folders among `paths` and below them, each once, in the order of `paths`; those of a comparison
    in the order of its variants, those of other folders by name.

    The controls and models inside a run folder belong to that run and are not listed.

    Args:
        paths: run folders, comparisons, or folders of either.
        warm_ups: also list the warm-ups that variants of a comparison share; they are listed in any case where they are
            named, or where no variant has a run yet.

    Returns:
        at least one folder.

    Raises:
        ConfigError: a path does not exist, or holds no run.

    Example:
        >>> find_runs([Path("nowhere")])
        Traceback (most recent call last):
        groupwise.config.errors.ConfigError: no such folder: nowhere; runs lie in runs/ unless --out said otherwise
    """
    runs_by_path: dict[Path, Path] = {}
    for path in paths:
        if not path.is_dir():
            raise ConfigError(f"no such folder: {path}; runs lie in runs/ unless --out said otherwise")
        runs = _below([path], DEPTH, warm_ups)
        if not runs:
            raise ConfigError(
                f"{path} holds no run: no metrics.jsonl in it or up to {DEPTH} folders down; give a folder that"
                " `groupwise train` printed"
            )
        for run in runs:
            runs_by_path.setdefault(run.resolve(), run)
    return list(runs_by_path.values())


def _below(folders: Sequence[Path], depth: int, warm_ups: bool) -> list[Path]:
    runs: list[Path] = []
    for folder in folders:
        if is_run(folder):
            runs.append(folder)
        elif depth:
            children = sorted(
                (child for child in folder.iterdir() if child.is_dir() and not child.name.startswith(".")), key=natural
            )
            order = _order(folder)
            children.sort(key=lambda child: order.get(child.name, len(order)))
            # Beside a comparison's variants lie the warm-ups that they share, which are no results.
            shared = not warm_ups and (folder / "comparison.json").is_file()
            results = [
                child for child in children if child.name in order or not (shared and child.name.startswith("warm-up-"))
            ]
            found = _below(results, depth - 1, warm_ups)
            runs += found or _below(children, depth - 1, warm_ups)
    return runs


def _order(folder: Path) -> dict[str, int]:
    """Returns the places of a comparison's variants by name; empty where the folder holds no comparison or a damaged
    one.
    """
    try:
        variants = json.loads(read_whole(folder / "comparison.json", MOST_TABLE_BYTES))["variants"]
        return {str(name): place for place, name in enumerate(variants)}
    except (OSError, ValueError, TypeError, KeyError, RecursionError):
        return {}
