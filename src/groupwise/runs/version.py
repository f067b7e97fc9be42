"""The version of Groupwise that wrote a run folder, and whether the installed version can go on with the run."""

from __future__ import annotations

import re
from importlib.metadata import version

from groupwise.config import ConfigError, read_json
from groupwise.runs.folder import RunFolder

FIRST_READ = (0, 2)
"""The oldest version, major and minor, whose configurations and checkpoints the installed version reads."""


def written_by(folder: RunFolder) -> str | None:
    """Returns the version that started the run last, and `None` where the folder does not say it."""
    try:
        starts = read_json(folder.environment).get("starts")
    except ConfigError:
        return None
    start = starts[-1] if isinstance(starts, list) and starts else None
    versions = start.get("versions") if isinstance(start, dict) else None
    value = versions.get("groupwise") if isinstance(versions, dict) else None
    return value if isinstance(value, str) and _numbers(value) else None


def require_known_version(folder: RunFolder, installed: str | None = None) -> None:
    """Refuses to go on with a run that another, incompatible version wrote; a run of an unknown version passes.

    Args:
        folder: a run folder.
        installed: the version that asks; the installed one by default.

    Raises:
        ConfigError: the run's version is older than `FIRST_READ`, or newer than the installed one.

    Example:
        >>> from pathlib import Path
        >>> require_known_version(RunFolder(Path("nowhere")))
    """
    theirs, ours = written_by(folder), installed or version("groupwise")
    if theirs is None or FIRST_READ <= _numbers(theirs) <= _numbers(ours):
        return
    if _numbers(theirs) > _numbers(ours):
        raise ConfigError(
            f"{folder.path} was written by Groupwise {theirs}, and {ours} is installed; install {theirs} or later to go"
            " on with the run (groupwise report and doctor read it)"
        )
    raise ConfigError(
        f"{folder.path} was written by Groupwise {theirs}, whose configuration and checkpoints {ours} does not read;"
        f" go on with {theirs} (pip install '.' in a checkout of that version), or train anew into another folder"
        " (groupwise report, doctor and export read the run)"
    )


def _numbers(text: str) -> tuple[int, ...]:
    return tuple(int(number) for number in re.findall(r"\d+", text)[:2])
