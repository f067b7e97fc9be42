"""A control group (version 2 or version 1), in which the kernel bounds the memory and the number of processes; only
where this machine lets a process create one.
"""

from __future__ import annotations

import errno
import os
import time

from . import kernel

_NAME = "groupwise-"
_SECONDS_TO_REMOVE = 2.0
_ABANDONED = 3600.0
"""Age in seconds of an empty group from which on its supervisor counts as killed."""
_BESIDE_MB = 64
"""Megabytes that the kernel counts beside a program's own pages: the cached copies of its files, and the kernel's own
memory.
"""
_BESIDE_TASKS = 32
"""Processes that a flood may start between two measurements; the next measurement compares with the configured limit
and reports it.
"""


class Cgroup:
    """One control group, with one folder a controller."""

    def __init__(self, folders: list[str]) -> None:
        self._folders = folders

    def take(self, process: int) -> None:
        """Puts a process into the group; the processes that it starts belong to the group as well."""
        for folder in self._folders:
            kernel.write(f"{folder}/cgroup.procs", str(process))

    @property
    def ran_out(self) -> bool:
        """True where the kernel killed a process of the group because its memory was full."""
        return any(
            _number(f"{folder}/{file}", "oom_kill") > 0
            for folder in self._folders
            for file in ("memory.events", "memory.oom_control")
        )

    def remove(self) -> None:
        """Removes the group after its processes have ended; the kernel may take a moment to notice their end."""
        until = time.monotonic() + _SECONDS_TO_REMOVE
        for folder in self._folders:
            while not _removed(folder) and time.monotonic() < until:
                time.sleep(0.001)


def make(
    memory_mb: float, num_processes: int, top: str = "/sys/fs/cgroup", mine: str = "/proc/self/cgroup"
) -> Cgroup | None:
    """Creates a control group below the group of this process.

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
    """Returns True where this process may create a group that bounds memory."""
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
    """Returns the folders in which groups can be created, and the controllers of each folder."""
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
    """Returns True where groups below this one have the controllers. Missing controllers are requested; the kernel
    refuses them to a group that contains processes itself.
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
    # Swap counts as memory; a kernel without swap has no such file.
    for file, value in (("memory.swap.max", "0"), ("memory.memsw.limit_in_bytes", most)):
        if os.path.exists(f"{folder}/{file}"):
            kernel.write(f"{folder}/{file}", value)


def _forget_abandoned(parent: str) -> None:
    for folder in os.scandir(parent):
        if folder.name.startswith(_NAME) and time.time() - folder.stat().st_mtime > _ABANDONED:
            _removed(folder.path)


def _removed(folder: str) -> bool:
    """Removes a folder and returns True where the folder no longer exists; a group with a living process stays."""
    try:
        os.rmdir(folder)
    except OSError as error:
        return error.errno == errno.ENOENT
    return True


def _number(path: str, name: str) -> int:
    """Returns the number that follows a name in a file of names and numbers."""
    words = _words(path)
    return int(words[words.index(name) + 1]) if name in words else 0


def _words(path: str) -> list[str]:
    try:
        with open(path) as file:
            return file.read().split()
    except OSError:
        return []
