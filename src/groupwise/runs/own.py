"""Which configurations this user made himself: a list of his own, beside which no question is asked before the code
that they name is run again.

A configuration is known by a hash of three things together: what it says, the real path of its file, and the number
that the file system gave its folder.

- What it says alone would not do: whoever copies a public configuration may put a module of that name beside it.
- The path alone would not do: another folder may lie there tomorrow. An archive unpacked at the same place has another
  number.
- A mark inside the folder would not do: it is copied with the folder.

So a folder that was moved, copied or restored is asked about once more, and so is one on a file system that renumbers
its folders: it errs on that side. What the list does not speak of is the modules themselves: whoever may write where
you keep your own code needs no run folder to have it run.

The list is `groupwise/own` below `$XDG_STATE_HOME` (`~/.local/state`): one hash a line, the newest last, readable and
writable for its owner alone. It says nothing about what was run. One that others may write is not read.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import stat
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from groupwise import file_lock

MOST = 20_000
"""Lines that are kept, the newest; a configuration whose line is gone is asked about once more."""

_LINE = 65
_PATIENCE_SECONDS = 5.0


def own_list() -> Path:
    """The file of the list.

    Example:
        >>> own_list().name
        'own'
    """
    return Path(os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state") / "groupwise" / "own"


def is_own(file: Path, said: Any) -> bool:
    """Whether this user made the configuration in this file, or was asked about it before.

    Args:
        file: of the configuration, such as a run's `config.json`.
        said: what it says, JSON-able.

    Example:
        >>> is_own(Path("nowhere/config.json"), {})
        False
    """
    try:
        line = _hash(file, said)
        with _opened(os.O_RDONLY) as descriptor, _locked(descriptor, shared=True):
            return line in _read(descriptor)
    except OSError:
        return False


def note_own(file: Path, said: Any) -> str:
    """Writes a configuration into the list. Several processes may do so at once.

    Args:
        file: of the configuration; its folder is there, it need not be.
        said: what it says, JSON-able.

    Returns:
        why it could not be written; empty where it was.
    """
    try:
        line = _hash(file, said)
        own_list().parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        with _opened(os.O_RDWR | os.O_APPEND | os.O_CREAT) as descriptor, _locked(descriptor):
            lines = _read(descriptor)
            if line in lines:
                return ""
            if len(lines) >= 2 * MOST:
                # In place and under the lock, so that a process that has the file open writes into no other one.
                os.ftruncate(descriptor, 0)
                os.write(descriptor, b"".join(lines[1 - MOST :]))
            os.write(descriptor, line)
            os.fsync(descriptor)
    except OSError as error:
        return f"{own_list()} cannot be written ({error.strerror or error})"
    return ""


def _hash(file: Path, said: Any) -> bytes:
    """A line of the list. Only the folder is followed through links: a file that is a link to somebody's configuration
    is not that configuration.
    """
    folder = file.parent.resolve(strict=True)
    # As it would be read from the file: keys are texts there, and tuples lists.
    content = json.dumps([str(folder / file.name), folder.stat().st_ino, json.loads(json.dumps(said))], sort_keys=True)
    return hashlib.sha256(content.encode("utf-8", "surrogatepass")).hexdigest().encode() + b"\n"


@contextlib.contextmanager
def _opened(flags: int) -> Iterator[int]:
    """The list, or an `OSError`: also where it is a link, or others may write it."""
    descriptor = os.open(own_list(), flags | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    try:
        found = os.fstat(descriptor)
        if not stat.S_ISREG(found.st_mode) or found.st_uid != os.geteuid() or found.st_mode & 0o022:
            raise PermissionError(0, f"it is not this user's alone; write chmod 600 {own_list()}")
        yield descriptor
    finally:
        os.close(descriptor)


@contextlib.contextmanager
def _locked(descriptor: int, shared: bool = False) -> Iterator[None]:
    """The list to oneself for a moment; a file system without locks, or a process that keeps it, is not waited for."""
    until = time.monotonic() + _PATIENCE_SECONDS
    while not file_lock.take(descriptor, shared=shared) and time.monotonic() < until:
        time.sleep(0.01)
    yield


def _read(descriptor: int) -> list[bytes]:
    return os.pread(descriptor, 4 * MOST * _LINE, 0).splitlines(keepends=True)
