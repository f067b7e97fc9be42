"""The cases of the doctor's bench, read from `doctor_faults/`: planted faults, and runs in which nothing is wrong."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import final

from pydantic import Field

from groupwise.config import Config, ConfigError, read_toml, validate

FOLDER = Path(__file__).resolve().parent / "doctor_faults"
HEALTHY = "healthy"
"""The file of runs without a fault."""
_OTHERS = ("bases", "names")


@final
class Base(Config):
    """A shipped experiment in the short form that faults are planted in."""

    experiment: str
    domain: str
    set: tuple[str, ...] = ()
    warm_up: str = ""
    """Setting that shortens the rest of the run whose warm-up is shared; empty where the base has none of its own."""
    start: str = ""
    """Another base whose warm-up it starts from."""


@final
class _Entry(Config):
    name: str
    base: str
    description: str = ""
    cause: str = ""
    set: tuple[str, ...] = ()
    hook: str = ""
    fresh: bool = False


@final
class _File(Config):
    fault: tuple[_Entry, ...] = ()
    healthy: tuple[_Entry, ...] = ()


@final
class Case(Config):
    """A run of the bench: a fault in its base, or a base without one.

    Args:
        description: what a person did wrong, or how a healthy run was shortened.
        cause: what a good doctor would say.
        set: changes, as on the command line.
        hook: import path of a function that is called before anything is loaded.
        fresh: whether the run makes its own warm-up.
        planted_by: the file it stands in.
        names: findings that count as naming the cause.
    """

    name: str
    description: str
    cause: str
    base: Base
    set: tuple[str, ...]
    hook: str
    fresh: bool
    planted_by: str
    names: tuple[str, ...]

    @property
    def is_fault(self) -> bool:
        """Returns whether something was planted."""
        return self.planted_by != HEALTHY

    @property
    def digest(self) -> str:
        """Returns twelve digits of what is run; the texts and the accepted names change no run."""
        base = {key: value for key, value in self.base.model_dump().items() if key != "start" or value}
        parts = [base, self.set, self.hook, self.fresh]
        return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()[:12]


class _Bases(Config):
    base: dict[str, Base] = Field(default_factory=dict)


class _Names(Config):
    names: dict[str, tuple[str, ...]] = Field(default_factory=dict)


def bases(folder: Path = FOLDER) -> dict[str, Base]:
    """Returns the short forms of shipped experiments, by name."""
    return validate(_Bases, read_toml(folder / "bases.toml")).base


def cases(folder: Path = FOLDER) -> dict[str, Case]:
    """Returns every case by its name.

    Args:
        folder: of the files.

    Raises:
        ConfigError: two cases share a name, or a case names a base that there is not.
    """
    known = bases(folder)
    path = folder / "names.toml"
    names = validate(_Names, read_toml(path)).names if path.is_file() else {}
    read: dict[str, Case] = {}
    for file in sorted(folder.glob("*.toml")):
        if file.stem in _OTHERS:
            continue
        parsed = validate(_File, read_toml(file))
        for entry in parsed.healthy if file.stem == HEALTHY else parsed.fault:
            if entry.name in read:
                raise ConfigError(f"{file}: two cases are called {entry.name!r}; give one another name")
            if entry.base not in known:
                raise ConfigError(f"{file}: {entry.name}: base = {entry.base!r}; write one of {', '.join(known)}")
            values = {key: getattr(entry, key) for key in ("name", "description", "cause", "set", "hook", "fresh")}
            accepted = names.get(entry.name, ())
            read[entry.name] = Case(**values, base=known[entry.base], planted_by=file.stem, names=accepted)
    return read
