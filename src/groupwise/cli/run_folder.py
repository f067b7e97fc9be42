"""Run folders on the command line: a name for a new one, and a clear word when an old one is not there."""

from __future__ import annotations

import datetime
from pathlib import Path

from groupwise.config import ConfigError


def default_run_folder(experiment: str, seed: int) -> Path:
    """`runs/<experiment>-<seed>-<timestamp>`."""
    return Path("runs") / f"{experiment}-{seed}-{datetime.datetime.now():%Y%m%d-%H%M%S}"


def require_run(folder: Path) -> None:
    """Refuses a path that is no run folder.

    Raises:
        ConfigError: absent, or without the `config.json` that every run folder has.
    """
    if not folder.is_dir():
        raise ConfigError(f"no such run folder: {folder}; runs lie in runs/ unless --out said otherwise")
    if not (folder / "config.json").is_file():
        raise ConfigError(f"{folder} is not a run folder: it has no config.json; give the folder that `groupwise train` printed")
