"""Run folders on the command line: a clear word where one is not there, and the models in it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from groupwise.config import ConfigError, read_json
from groupwise.runs.folder import RunFolder
from groupwise.runs.natural_order import natural


def require_run(folder: Path) -> None:
    """Refuses a path that is no run folder.

    Args:
        folder: what the user named.

    Raises:
        ConfigError: absent, or without the `config.json` that every run folder has.

    Example:
        >>> require_run(Path("nowhere"))
        Traceback (most recent call last):
        groupwise.config.errors.ConfigError: no such run folder: nowhere; runs lie in runs/ unless --out said otherwise
    """
    if not folder.is_dir():
        raise ConfigError(f"no such run folder: {folder}; runs lie in runs/ unless --out said otherwise")
    if not RunFolder(folder).is_run:
        raise ConfigError(
            f"{folder} is not a run folder: it has no config.json; give the folder that `groupwise train` printed"
        )


def run_config(folder: Path) -> dict[str, Any]:
    """Reads the resolved configuration of a run.

    Args:
        folder: the run folder.

    Raises:
        ConfigError: it is no run folder, or its `config.json` is damaged or states not every key.
    """
    require_run(folder)
    table = read_json(RunFolder(folder).config)
    missing = [key for key in ("name", "method", "seed", "objective", "domain") if key not in table]
    if missing:
        raise ConfigError(
            f"{RunFolder(folder).config} lacks {', '.join(missing)}: it is not what `groupwise train` wrote; repeat the"
            " run, or put the file back"
        )
    return table


def require_new(folder: Path) -> None:
    """Refuses a folder that exists already.

    Args:
        folder: what the user named.

    Raises:
        ConfigError: it exists.

    Example:
        >>> require_new(Path("nowhere"))
    """
    if folder.exists():
        raise ConfigError(f"{folder} exists; nothing is overwritten, so give a new name with --out")


def model_folder(run: Path, which: str = "final") -> Path:
    """Returns the folder of a run's model: the final one, the best one, or that of a step.

    Args:
        run: the run folder.
        which: `final`, `best`, or the number of a step.

    Raises:
        ConfigError: the run has no such model (yet); those it has are named.

    Example:
        >>> model_folder(Path("nowhere"), "best")
        Traceback (most recent call last):
        groupwise.config.errors.ConfigError: nowhere has no best model yet; finish it with `groupwise resume nowhere`
    """
    folder = RunFolder(run)
    places = {"final": folder.model, "best": folder.best}
    places |= {path.name.removeprefix("step-"): path for path in folder.models.glob("step-*")}
    # A model's folder appears with everything in it, in whatever format its ecosystem has.
    existing_models = tuple(name for name, path in places.items() if path.is_dir())
    if which not in existing_models:
        advice = (
            f"; it has {', '.join(existing_models)}"
            if existing_models
            else f" yet; finish it with `groupwise resume {run}`"
        )
        steps = [path.name.removeprefix("step-") for path in sorted(folder.checkpoints.glob("step-*"), key=natural)]
        export = f"; `groupwise export {run} --which N` takes a checkpoint: {', '.join(steps)}" if steps else ""
        raise ConfigError(f"{run} has no {which} model{advice}{export}")
    return places[which]
