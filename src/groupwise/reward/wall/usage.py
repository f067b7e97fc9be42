"""The resources that the descendants of a process use together, read from `/proc`: for machines without control
groups.
"""

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
            # The process ended in between.
            continue
    return numbers[1:]


def used(root: int, num_processes: int) -> tuple[int, float, float]:
    """Returns the number of the descendants and their threads, their megabytes, and their CPU seconds.

    Processes that nobody waited for count for as long as they live.

    Args:
        num_processes: where more than these are there, nothing but their number is counted.
    """
    numbers = descendants(root, num_processes + 1)
    tasks, kilobytes, ticks = len(numbers), 0, 0
    for number in numbers if tasks <= num_processes + 1 else ():
        try:
            with open(f"/proc/{number}/stat", "rb") as file:
                fields = file.read().rpartition(b")")[2].split()
            ticks, tasks = ticks + sum(map(int, fields[11:15])), tasks + int(fields[17]) - 1
            kilobytes += _kilobytes(number)
        except (OSError, IndexError):
            # The process ended in between.
            continue
    return tasks, kilobytes / 1024, ticks / _TICKS


def _kilobytes(number: int) -> int:
    """Returns the memory of a process without mapped files; shared memory counts by its share."""
    with open(f"/proc/{number}/smaps_rollup", "rb") as file:
        return sum(int(line.split()[1]) for line in file if line.startswith((b"Pss_Anon", b"Pss_Shmem")))
