"""A group of processes whose memory and number the kernel bounds, where this machine lets one be made: version 2 of
control groups, or version 1.
"""

from __future__ import annotations

import errno
import os
import time

from . import kernel

_NAME = "groupwise-"
_SECONDS_TO_REMOVE = 2.0
_ABANDONED = 3600.0
"""An empty group of this age is of a supervisor that was killed."""
_BESIDE_MB = 64
"""What the kernel counts beside a program's own pages: its files' copies in memory, and the kernel's own."""
_BESIDE_TASKS = 32
"""Between two looks a flood comes this far; then the number that was asked for is counted, and named."""


class Cgroup:
    """One group, of one folder a controller.

    Args:
        folders: those that were made.
    """

    def __init__(self, folders: list[str]) -> None:
        self._folders = folders

    def take(self, process: int) -> None:
        """Puts a process into the group; what it starts is born there.

        Args:
            process: its number.
        """
        for folder in self._folders:
            kernel.write(f"{folder}/cgroup.procs", str(process))

    @property
    def ran_out(self) -> bool:
        """Whether the kernel ended a process of the group because its memory was full."""
        return any(
            _number(f"{folder}/{file}", "oom_kill") > 0
            for folder in self._folders
            for file in ("memory.events", "memory.oom_control")
        )

    def remove(self) -> None:
        """Removes the group, whose processes have ended; it takes the kernel a moment to know that."""
        until = time.monotonic() + _SECONDS_TO_REMOVE
        for folder in self._folders:
            while not _removed(folder) and time.monotonic() < until:
                time.sleep(0.001)


def make(
    memory_mb: float, num_processes: int, top: str = "/sys/fs/cgroup", mine: str = "/proc/self/cgroup"
) -> Cgroup | None:
    """A new group below this process's own.

    Args:
        memory_mb: what its processes may use together, what they write to a file system in memory included.
        num_processes: processes and threads at one time.
        top: where control groups are mounted.
        mine: the file that says in which groups this process is.

    Returns:
        the group; `None` where none may be made.
    """
    limits = {"memory": str(int((memory_mb + _BESIDE_MB) * 2**20)), "pids": str(num_processes + _BESIDE_TASKS)}
    name = f"{_NAME}{os.urandom(8).hex()}"
    folders: list[str] = []
    for parent, controllers in _parents(top, mine):
        folder = f"{parent}/{name}"
        try:
            _forget_abandoned(parent)
            os.mkdir(folder)
        except OSError:
            continue
        try:
            for controller in controllers:
                _limit(folder, controller, limits[controller])
        except OSError:
            _removed(folder)
            continue
        folders.append(folder)
    return Cgroup(folders) if folders else None


def available() -> bool:
    """Whether a group that bounds memory may be made here."""
    group = make(16, 16)
    if group is None:
        return False
    bounds = any(
        os.path.exists(f"{folder}/{file}")
        for folder in group._folders
        for file in ("memory.max", "memory.limit_in_bytes")
    )
    group.remove()
    return bounds


def _parents(top: str, mine: str) -> list[tuple[str, list[str]]]:
    """The folders in which groups could be made, and which of our controllers each has."""
    try:
        with open(mine) as file:
            lines = [line.rstrip("\n").split(":", 2) for line in file]
    except OSError:
        return []
    parents = []
    for number, names, path in lines:
        if number != "0":
            # Version 1: a mount for each controller.
            parents += [
                (f"{top}/{names}{path}".rstrip("/"), [name]) for name in ("memory", "pids") if name in names.split(",")
            ]
        else:
            parent = f"{top}{path}".rstrip("/")
            controllers = [name for name in ("memory", "pids") if name in _words(f"{parent}/cgroup.controllers")]
            if controllers and _hands_on(parent, controllers):
                parents.append((parent, controllers))
    return parents


def _hands_on(parent: str, controllers: list[str]) -> bool:
    """Whether groups below this one have the controllers; asked for where they have not, which the kernel refuses where
    processes live beside them.
    """
    if not set(controllers) <= set(_words(f"{parent}/cgroup.subtree_control")):
        try:
            kernel.write(f"{parent}/cgroup.subtree_control", " ".join(f"+{name}" for name in controllers))
        except OSError:
            return False
    return True


def _limit(folder: str, controller: str, most: str) -> None:
    if controller == "pids":
        kernel.write(f"{folder}/pids.max", most)
        return
    second = os.path.exists(f"{folder}/memory.max")
    kernel.write(f"{folder}/{'memory.max' if second else 'memory.limit_in_bytes'}", most)
    # Swap is memory too; a kernel without it has no such file.
    for file, value in (("memory.swap.max", "0"), ("memory.memsw.limit_in_bytes", most)):
        if os.path.exists(f"{folder}/{file}"):
            kernel.write(f"{folder}/{file}", value)


def _forget_abandoned(parent: str) -> None:
    for folder in os.scandir(parent):
        if folder.name.startswith(_NAME) and time.time() - folder.stat().st_mtime > _ABANDONED:
            _removed(folder.path)


def _removed(folder: str) -> bool:
    """Whether the folder is gone; a group with a living process in it stays."""
    try:
        os.rmdir(folder)
    except OSError as error:
        return error.errno == errno.ENOENT
    return True


def _number(path: str, name: str) -> int:
    """The number behind a name in a file of names and numbers."""
    words = _words(path)
    return int(words[words.index(name) + 1]) if name in words else 0


def _words(path: str) -> list[str]:
    try:
        with open(path) as file:
            return file.read().split()
    except OSError:
        return []
