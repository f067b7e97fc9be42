"""A control group (version 2 or version 1), in which the kernel bounds the memory and the number of processes and
counts CPU time; only where this machine lets a process create one.
"""

import contextlib
import os
import time

_NAME = "groupwise-"
_SECONDS_TO_REMOVE = 2.0
_ABANDONED = 3600.0
"""Age in seconds at which an empty group counts as left by a process that was killed."""
_BESIDE_MB = 64
"""Megabytes that the kernel counts in addition to a program's own pages: the cached copies of its files, and the
kernel's own memory.
"""
_CONTROLLERS = ("memory", "pids", "cpuacct")


class Cgroup:
    """One control group, with one folder per controller. A process joins it by writing its number, or 0, to the
    `cgroup.procs` of each folder.
    """

    def __init__(self, folders: list[str]) -> None:
        self.folders = folders

    @property
    def ran_out(self) -> bool:
        """True where the kernel killed a process of the group because its memory was full."""
        return any(self._number(file, "oom_kill") > 0 for file in ("memory.events", "memory.oom_control"))

    @property
    def cpu_seconds(self) -> float:
        """CPU seconds of all processes that were ever in the group."""
        nanoseconds = next((int(words[0]) for words in self._read("cpuacct.usage")), 0)
        return max(nanoseconds / 1e9, self._number("cpu.stat", "usage_usec") / 1e6)

    def remove(self) -> None:
        """Removes the group after its processes have ended; the kernel may take a moment to notice their end."""
        until = time.monotonic() + _SECONDS_TO_REMOVE
        for folder in self.folders:
            while not _removed(folder) and time.monotonic() < until:
                time.sleep(0.001)

    def _read(self, file: str) -> list[list[str]]:
        return [words for folder in self.folders if (words := _words(f"{folder}/{file}"))]

    def _number(self, file: str, name: str) -> int:
        """Returns the number that follows a name in a file of names and numbers."""
        return max((int(words[words.index(name) + 1]) for words in self._read(file) if name in words), default=0)


def make(
    memory_mb: float, num_processes: int, top: str = "/sys/fs/cgroup", mine: str = "/proc/self/cgroup"
) -> Cgroup | None:
    """Creates a control group below the group of this process.

    Args:
        memory_mb: what its processes may use together, what they write to a file system in memory included.
        num_processes: processes and threads at one time.
        top: where control groups are mounted.
        mine: the file that lists in which groups this process is.

    Returns:
        the group; `None` where none may be made that bounds memory, processes and CPU time.
    """
    name, folders = f"{_NAME}{os.urandom(8).hex()}", []
    most = str(int((memory_mb + _BESIDE_MB) * 2**20))
    try:
        for parent in _parents(top, mine):
            _forget_abandoned(parent)
            folder = f"{parent}/{name}"
            os.mkdir(folder)
            folders.append(folder)
            # Swap counts as memory; a kernel without swap has no such file.
            for file, text in (
                ("pids.max", str(num_processes)),
                ("memory.max", most),
                ("memory.limit_in_bytes", most),
                ("memory.swap.max", "0"),
                ("memory.memsw.limit_in_bytes", most),
            ):
                if os.path.exists(f"{folder}/{file}"):
                    _write(f"{folder}/{file}", text)
    except OSError:
        for folder in folders:
            _removed(folder)
        return None
    return Cgroup(folders) if folders else None


def available() -> bool:
    """Returns True where this process may create a group that bounds memory, processes and CPU time."""
    group = make(16, 16)
    if group is not None:
        group.remove()
    return group is not None


def _parents(top: str, mine: str) -> list[str]:
    """Returns the folders in which a group has to be created to have all controllers; empty where some are missing."""
    try:
        with open(mine) as file:
            lines = [line.rstrip("\n").split(":", 2) for line in file]
    except OSError:
        return []
    trees = {name: f"{top}/{names}{path}".rstrip("/") for _, names, path in lines for name in names.split(",")}
    if trees.keys() >= set(_CONTROLLERS):
        # Version 1: a tree for each controller, or for two that are mounted together.
        return list(dict.fromkeys(trees[name] for name in _CONTROLLERS))
    parent = next((f"{top}{path}".rstrip("/") for number, _, path in lines if number == "0"), "")
    # Version 2 counts CPU time in every group.
    controllers = {"memory", "pids"} & set(_words(f"{parent}/cgroup.controllers"))
    if len(controllers) < 2:
        return []
    if not controllers <= set(_words(f"{parent}/cgroup.subtree_control")):
        # The kernel refuses this to a group that contains processes itself.
        _write(f"{parent}/cgroup.subtree_control", "+memory +pids")
    return [parent]


def _forget_abandoned(parent: str) -> None:
    for folder in os.scandir(parent):
        # Another process may remove its group between the two calls.
        with contextlib.suppress(FileNotFoundError):
            if folder.name.startswith(_NAME) and time.time() - folder.stat().st_mtime > _ABANDONED:
                _removed(folder.path)


def _removed(folder: str) -> bool:
    """Removes a folder; returns whether it is gone. A group with a living process stays."""
    with contextlib.suppress(OSError):
        os.rmdir(folder)
    return not os.path.exists(folder)


def _write(path: str, text: str) -> None:
    """Writes a setting of the kernel in one call and without a buffer."""
    with open(path, "wb", buffering=0) as file:
        file.write(text.encode())


def _words(path: str) -> list[str]:
    try:
        with open(path) as file:
            return file.read().split()
    except OSError:
        return []
