"""Runs a program that a model wrote to its end, inside the wall of `groupwise.reward.wall`, within limits on all
processes that it starts.
"""

import asyncio
import contextlib
import json
import os
import signal
import socket
import subprocess
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, final

from groupwise.reward.wall import bubblewrap, cgroup, machine_wall, usage
from groupwise.reward.wall.machine_wall import Limits
from groupwise.reward.wall.readable_paths import python

__all__ = ["Finished", "Limits", "python", "run_limited"]

_LOOK = 0.05
_MAX_FILES = 16384


@final
@dataclass(frozen=True)
class Finished:
    """The end of a program: its status, its output, and the limit that stopped it.

    Args:
        status: 0 only where it ended well.
        output: what it printed, up to the limit of a file.
        timed_out: the wall time ended it.
        errors: what it wrote to standard error, up to the same limit.
        limit: which limit on all its processes ended it: "wall", "cpu", "memory", "disk", "processes", or "".
        refused: why it did not run inside its wall to its end, whatever it did itself; "" where it did.
    """

    status: int
    output: str
    timed_out: bool
    errors: str = field(default="", compare=False)
    limit: str = field(default="", compare=False)
    refused: str = field(default="", compare=False)


async def run_limited(
    command: Sequence[str],
    limits: Limits,
    files: Mapping[str, str] | None = None,
    stdin: str = "",
    line: socket.socket | None = None,
    readable: Sequence[str] = (),
) -> Finished:
    """Runs a program inside the wall; no process of it is left when this returns or is cancelled, and no file, or one
    that is being removed.

    It sees an environment without the parent's variables (no keys), the system's and Python's files to read, and a
    folder of its own, which is its working, home and temporary directory. `machine_wall.best_wall()` describes
    the wall on this machine.

    Args:
        command: the program and its arguments.
        limits: limits of the program with all its processes.
        files: name -> text of what is in its folder at the start.
        stdin: text of its standard input.
        line: an open socket that it gets under the same number, and that is closed here.
        readable: paths that it may read in addition to the usual.

    Returns:
        How it ended and what it printed, read from the descriptor that it wrote to: what it does with names changes
            nothing.

    Raises:
        OSError: no process can be started.

    Example:
        >>> asyncio.run(run_limited(["echo", "hello"], Limits()))
        Finished(status=0, output='hello\\n', timed_out=False, errors='', limit='', refused='')
    """
    with contextlib.ExitStack() as stack:
        passed = [] if line is None else [stack.enter_context(line).fileno()]
        # Files in memory have no name, so that no program can find them and none remains.
        source, output, errors, status = (
            stack.enter_context(os.fdopen(os.memfd_create("program"), "w+b", buffering=0)) for _ in range(4)
        )
        source.write(stdin.encode(errors="replace"))
        source.seek(0)
        # The program's files in memory count as memory, and bubblewrap's own process counts as one of its processes.
        group = cgroup.make((limits.memory_mb or 2**20) + limits.disk_mb, limits.num_processes + 1)
        if group is not None:
            stack.callback(group.remove)
        with machine_wall.wrap(command, limits, files, readable, status.fileno(), group) as (walled, descriptors):
            process = subprocess.Popen(
                walled,
                pass_fds=[*passed, *descriptors],
                stdin=source,
                stdout=output,
                stderr=errors,
                env={"PATH": os.environ.get("PATH", os.defpath)},
                cwd="/",
            )
        if line is not None:
            line.close()
        try:
            limit = await _limit_that_ended(process, limits, group)
        finally:
            # The program's processes must be gone before this call returns, even after a cancellation.
            await asyncio.shield(_end(process))
        max_bytes = limits.output_mb * 2**20
        output_text, error_text, status_text = (
            os.pread(stream.fileno(), max_bytes, 0).decode(errors="replace") for stream in (output, errors, status)
        )
    ended = _ended(status_text)
    refused = (
        ""
        if limit or "exit-code" in ended
        else error_text.strip().rpartition("\n")[2] or "the wall ended without a word"
    )
    limit = limit or ended.get("limit", "")
    return Finished(
        ended.get("exit-code", process.returncode), output_text, limit == "wall", error_text, limit, refused
    )


def _ended(status: str) -> dict[str, Any]:
    """Returns the last report of the wall about the program."""
    lines = status.splitlines()
    return json.loads(lines[-1]) if lines else {}


async def _limit_that_ended(process: subprocess.Popen[bytes], limits: Limits, group: cgroup.Cgroup | None) -> str:
    """Waits for the end of a program or for a limit. Returns the name of the limit, or an empty string."""
    until = float("inf") if limits.wall_seconds is None else time.monotonic() + limits.wall_seconds
    while not await _ends_within(_LOOK, process):
        if time.monotonic() > until:
            return "wall"
        if limit := _passed(process.pid, limits, group):
            return limit
    return "memory" if group is not None and group.ran_out else ""


async def _ends_within(seconds: float, process: subprocess.Popen[bytes]) -> bool:
    """Waits for the end of a process. Linux before 5.3 has no pidfd, so there the end is noticed only when the time is
    over.
    """
    loop, ended = asyncio.get_running_loop(), asyncio.Event()
    with contextlib.ExitStack() as stack:
        with contextlib.suppress(OSError):
            number = os.pidfd_open(process.pid)
            stack.callback(os.close, number)
            loop.add_reader(number, ended.set)
            stack.callback(loop.remove_reader, number)
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(ended.wait(), seconds)
    return process.poll() is not None


def _passed(process: int, limits: Limits, group: cgroup.Cgroup | None) -> str:
    if group is not None:
        memory, cpu, tasks = group.ran_out, group.cpu_seconds, 0
    else:
        tasks, megabytes, cpu = usage.used(process, limits.num_processes)
        memory = limits.memory_mb is not None and megabytes > limits.memory_mb
    if memory:
        return "memory"
    if limits.cpu_seconds is not None and cpu > limits.cpu_seconds:
        return "cpu"
    if tasks > limits.num_processes:
        return "processes"
    # The file system bounds only the size of the files, and empty files fill the kernel's memory too.
    for child in usage.descendants(process, 1):
        with contextlib.suppress(OSError):
            room = os.statvfs(f"/proc/{child}/root{bubblewrap.WORK}")
            if room.f_blocks * room.f_frsize == limits.disk_mb * 2**20 and room.f_files - room.f_ffree > _MAX_FILES:
                return "disk"
    return ""


async def _end(process: subprocess.Popen[bytes]) -> None:
    """Kills a program inside its wall, and waits for the end of its last process."""
    while process.poll() is None:
        if machine_wall.best_wall().kind == "bubblewrap":
            # bubblewrap ends when its first child has ended, and all other processes end with it. If bubblewrap is
            # killed first, it does not wait for any of them. If it has no child yet, it will have one soon.
            for first in usage.descendants(process.pid, 1)[:1]:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(first, signal.SIGKILL)
        else:
            process.terminate()
        await _ends_within(_LOOK, process)
