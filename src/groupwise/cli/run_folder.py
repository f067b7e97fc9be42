"""Run folders on the command line: a clear word where one is not there, and the models in it."""

from __future__ import annotations

from pathlib import Path

from groupwise.config import ConfigError


def require_run(folder: Path) -> None:
    """Refuses a path that is no run folder.

    Raises:
        ConfigError: absent, or without the `config.json` that every run folder has.
    """
    if not folder.is_dir():
        raise ConfigError(f"no such run folder: {folder}; runs lie in runs/ unless --out said otherwise")
    if not (folder / "config.json").is_file():
        raise ConfigError(f"{folder} is not a run folder: it has no config.json; give the folder that `groupwise train` printed")


def require_new(folder: Path) -> None:
    """Refuses a folder that exists already.

    Raises:
        ConfigError: it exists.
    """
    if folder.exists():
        raise ConfigError(f"{folder} exists; nothing is overwritten, so give a new name with --out")


def model_folder(run: Path, which: str = "final") -> Path:
    """The folder of a run's model: the final one, the best one, or that of a step.

    Raises:
        ConfigError: the run has no such model (yet); those it has are named.
    """
    places = {"final": run / "model", "best": run / "best"}
    places |= {path.name.removeprefix("step-"): path for path in (run / "models").glob("step-*")}
    there = tuple(name for name, path in places.items() if (path / "config.json").is_file())
    if which not in there:
        advice = f"; it has {', '.join(there)}" if there else f" yet; finish it with `groupwise resume {run}`"
        raise ConfigError(f"{run} has no {which} model{advice}")
    return places[which]
