"""What all that a process has started uses together, counted from `/proc`."""

from __future__ import annotations

import os

_TICKS = os.sysconf("SC_CLK_TCK")


def descendants(root: int, most: float = float("inf")) -> list[int]:
    """The processes below one, at this moment; itself is not among them.

    Args:
        root: its number.
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
            # It has ended in between.
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
        """Looks at every process once.

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
            # Who ignores that its children end never learns their times: what was seen of every process is kept as
            # well.
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
    """The megabytes of files of one file system that processes hold open and that no folder shows any more.

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
    """When a process started, its own seconds, and those of the children it has waited for."""
    with open(f"/proc/{number}/stat", "rb") as file:
        fields = file.read().rpartition(b")")[2].split()
    return int(fields[19]), (int(fields[11]) + int(fields[12])) / _TICKS, (int(fields[13]) + int(fields[14])) / _TICKS


def _threads_and_memory(number: int) -> tuple[int, int]:
    """Threads of a process, and its memory that no file holds, in kilobytes."""
    fields = _fields(f"/proc/{number}/status")
    return fields.get(b"Threads", 1), fields.get(b"RssAnon", 0) + fields.get(b"RssShmem", 0)


def _shared_out(number: int) -> int:
    """The memory of a process in kilobytes, where a page that several have counts for each in part."""
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
