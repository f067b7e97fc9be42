"""Configurations that this user made: a list in the user's own folder. The code that a listed configuration names runs
again without a question.

The list identifies a configuration by one hash of three things: its content, the real path of its file, and the number
that the file system gave its folder.

- The content is not enough: a stranger may copy a public configuration and put a malicious module beside it.
- The path is not enough: another folder may lie at the same path tomorrow. An archive that is unpacked there has
  another number.
- A mark inside the folder is not enough: the mark is copied with the folder.

The user is therefore asked once more about a folder that was moved, copied or restored, and about a folder on a file
system that renumbers its folders. The list does not protect the modules themselves: a person who may write into the
user's code folder can run code without any run folder.

The list is the file `groupwise/own` below `$XDG_STATE_HOME` (`~/.local/state`): one hash a line, the newest last,
readable and writable only for its owner. It does not reveal which configurations were run. A list that other users may
write is not read.
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
"""The number of newest lines that stay; the user is asked once more about a configuration whose line is gone."""

_LINE = 65
_PATIENCE_SECONDS = 5.0


def authored_list() -> Path:
    """Returns the path of the list.

    Example:
        >>> authored_list().name
        'own'
    """
    return Path(os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state") / "groupwise" / "own"


def is_authored(file: Path, content: Any) -> bool:
    """Returns whether this user made the configuration in this file, or allowed it before.

    Args:
        file: the file of the configuration, for example a run's `config.json`.
        content: the configuration, JSON-able.

    Example:
        >>> is_authored(Path("nowhere/config.json"), {})
        False
    """
    try:
        line = _hash(file, content)
        with _opened(os.O_RDONLY) as descriptor, _locked(descriptor, shared=True):
            return line in _read(descriptor)
    except OSError:
        return False


def note_authored(file: Path, content: Any) -> str:
    """Writes a configuration into the list. Several processes may call it at once.

    Args:
        file: the file of the configuration; its folder exists, the file may not exist yet.
        content: the configuration, JSON-able.

    Returns:
        the reason why the list could not be written; empty on success.
    """
    try:
        line = _hash(file, content)
        authored_list().parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        with _opened(os.O_RDWR | os.O_APPEND | os.O_CREAT) as descriptor, _locked(descriptor):
            lines = _read(descriptor)
            if line in lines:
                return ""
            if len(lines) >= 2 * MOST:
                # The file is cut in place and under the lock: another process may have it open, and a new
                # file in its place would lose that process's line.
                os.ftruncate(descriptor, 0)
                os.write(descriptor, b"".join(lines[1 - MOST :]))
            os.write(descriptor, line)
            os.fsync(descriptor)
    except OSError as error:
        return f"{authored_list()} cannot be written ({error.strerror or error})"
    return ""


def _hash(file: Path, content: Any) -> bytes:
    """Returns a line of the list. Links are followed in the folder's path but not in the file's name: a link to a
    stranger's configuration is not that configuration.
    """
    folder = file.parent.resolve(strict=True)
    # The content is compared as JSON would read it: keys become texts, and tuples become lists.
    line = json.dumps([str(folder / file.name), folder.stat().st_ino, json.loads(json.dumps(content))], sort_keys=True)
    return hashlib.sha256(line.encode("utf-8", "surrogatepass")).hexdigest().encode() + b"\n"


@contextlib.contextmanager
def _opened(flags: int) -> Iterator[int]:
    """Opens the list; raises `OSError` where it is a link, or other users may write it."""
    descriptor = os.open(authored_list(), flags | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    try:
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode) or status.st_uid != os.geteuid() or status.st_mode & 0o022:
            raise PermissionError(0, f"it is not a private file of this user; write chmod 600 {authored_list()}")
        yield descriptor
    finally:
        os.close(descriptor)


@contextlib.contextmanager
def _locked(descriptor: int, shared: bool = False) -> Iterator[None]:
    """Locks the list within the block. After a few seconds it goes on without the lock: the file system may have no
    locks, or a process may never release its lock.
    """
    until = time.monotonic() + _PATIENCE_SECONDS
    while not file_lock.take(descriptor, shared=shared) and time.monotonic() < until:
        time.sleep(0.01)
    yield


def _read(descriptor: int) -> list[bytes]:
    return os.pread(descriptor, 4 * MOST * _LINE, 0).splitlines(keepends=True)
