"""The resources that a process and all its descendants use together, read from `/proc`."""

from __future__ import annotations

import os

_TICKS = os.sysconf("SC_CLK_TCK")


def descendants(root: int, most: float = float("inf")) -> list[int]:
    """Returns the processes below a process at this moment, without the process itself.

    Args:
        most: how many are enough: who counts a flood must not drown in it.

    Example:
        >>> descendants(2**30)
        []
    """
    numbers, looked_at = [root], 0
    while looked_at < len(numbers) <= most + 1:
        process = numbers[looked_at]
        looked_at += 1
        try:
            for thread in os.listdir(f"/proc/{process}/task"):
                with open(f"/proc/{process}/task/{thread}/children", "rb") as file:
                    numbers += map(int, file.read().split())
        except OSError:
            # The process has ended in between.
            continue
    return numbers[1:]


class Usage:
    """Sums over the descendants of a process.

    Args:
        root: number of the process. Its own time and memory do not count; the time of the children that it waited for
            does.
    """

    def __init__(self, root: int) -> None:
        self._root = root
        self._seen: dict[tuple[int, int], float] = {}
        self.tasks = 0
        """Processes and their threads."""
        self.cpu_seconds = 0.0
        self.memory_mb = 0.0

    def count(self, num_processes: int, memory_mb: float) -> None:
        """Measures every process once.

        Args:
            num_processes: where more than these are there, nothing but their number is counted.
            memory_mb: up to where a rough sum will do. It counts pages that processes share once for each; above this
                it is counted again, exactly.
        """
        numbers = descendants(self._root, num_processes + 1)
        self.tasks = len(numbers)
        if self.tasks > num_processes + 1:
            return
        kilobytes, seconds, self.tasks = 0, _times(self._root)[2], 0
        for number in numbers:
            try:
                started, own_seconds, child_seconds = _times(number)
                threads, resident = _threads_and_memory(number)
            except (OSError, IndexError, ValueError):
                continue
            # A process that ignores the end of its children never learns their times, so the last time of every process
            # is stored as well.
            self._seen[number, started] = own_seconds
            seconds, kilobytes, self.tasks = (
                seconds + own_seconds + child_seconds,
                kilobytes + resident,
                self.tasks + threads,
            )
        self.cpu_seconds = max(self.cpu_seconds, seconds, sum(self._seen.values()))
        self.memory_mb = kilobytes / 1024
        if self.memory_mb > memory_mb:
            self.memory_mb = sum(map(_shared_out, numbers)) / 1024


def unlinked_mb(root: int, device: int) -> float:
    """Returns the megabytes of deleted files of one file system that processes still hold open.

    Args:
        root: number of the process below which they are.
        device: of the file system, as `os.stat` numbers it.

    Example:
        >>> unlinked_mb(2**30, 0)
        0.0
    """
    sizes: dict[int, int] = {}
    for number in descendants(root):
        try:
            for name in os.listdir(f"/proc/{number}/fd"):
                status = os.stat(f"/proc/{number}/fd/{name}")
                if status.st_dev == device and status.st_nlink == 0:
                    sizes[status.st_ino] = status.st_blocks * 512
        except OSError:
            continue
    return sum(sizes.values()) / 2**20


def _times(number: int) -> tuple[int, float, float]:
    """Returns the start time of a process, its own CPU seconds, and those of the children that it has reaped."""
    with open(f"/proc/{number}/stat", "rb") as file:
        fields = file.read().rpartition(b")")[2].split()
    return int(fields[19]), (int(fields[11]) + int(fields[12])) / _TICKS, (int(fields[13]) + int(fields[14])) / _TICKS


def _threads_and_memory(number: int) -> tuple[int, int]:
    """Counts the threads of a process, and its memory without mapped files, in kilobytes."""
    fields = _fields(f"/proc/{number}/status")
    return fields.get(b"Threads", 1), fields.get(b"RssAnon", 0) + fields.get(b"RssShmem", 0)


def _shared_out(number: int) -> int:
    """Returns the memory of a process in kilobytes; a page that several processes share counts for each of them in
    part.
    """
    try:
        fields = _fields(f"/proc/{number}/smaps_rollup")
        return fields[b"Pss_Anon"] + fields.get(b"Pss_Shmem", 0)
    except (KeyError, PermissionError):
        return _threads_and_memory(number)[1]
    except OSError:
        return 0


def _fields(path: str) -> dict[bytes, int]:
    with open(path, "rb") as file:
        lines = (line.split() for line in file)
        return {words[0][:-1]: int(words[1]) for words in lines if len(words) > 1 and words[1].isdigit()}
