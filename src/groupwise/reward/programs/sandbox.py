"""Runs a program that a model wrote to its end, behind the wall of `groupwise.reward.programs.wall`, within limits on
all processes that it starts.
"""

from __future__ import annotations

import asyncio
import atexit
import contextlib
import json
import os
import socket
import subprocess
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import final

from groupwise.reward.programs.wall import machine_wall
from groupwise.reward.programs.wall.limits import Limits
from groupwise.reward.programs.wall.readable_paths import python

__all__ = ["LINE", "Finished", "Limits", "python", "run_limited"]

LINE = 3
"""The number under which a program finds the open socket that it is given."""
_SECONDS_TO_CLEAN = 30.0
_STATUS_KILLED = -9


@final
@dataclass(frozen=True)
class Finished:
    """The end of a program: its status, its output, and the limit that stopped it.

    Args:
        status: 0 only where it ended well; 125 where the wall could not be built.
        output: what it printed, up to the limit of a file.
        timed_out: the wall time ended it.
        errors: what it wrote to standard error, up to the same limit.
        limit: which limit on all its processes ended it: "wall", "cpu", "memory", "disk", "processes", or "".
        refused: why it did not run behind its wall to its end, whatever it did itself; "" where it did.
    """

    status: int
    output: str
    timed_out: bool
    errors: str = field(default="", compare=False)
    limit: str = field(default="", compare=False)
    refused: str = field(default="", compare=False)


@final
class _Keeper:
    """The process that forks a supervisor for every program. Starting a new Python for every program would take longer
    than all other work around it.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._process: subprocess.Popen[bytes] | None = None
        self._socket: socket.socket | None = None
        self._owner = 0

    def ask(self, descriptors: Sequence[int]) -> None:
        """Requests the run of a program.

        Args:
            descriptors: of the request, of the line back, and of the program.
        """
        with self._lock:
            for is_last_try in (False, True):
                try:
                    socket.send_fds(self._opened(), [b"run"], list(descriptors))
                    return
                except OSError:
                    # The process may have been killed in between; it is started a second time, once.
                    self._close()
                    if is_last_try:
                        raise

    def _opened(self) -> socket.socket:
        # A forked child inherits this object, but must not use the parent's socket.
        if self._socket is None or self._owner != os.getpid():
            own_end, keeper_end = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
            with keeper_end:
                null_device = subprocess.DEVNULL
                environment = {"PATH": os.environ.get("PATH", os.defpath)}
                self._process = subprocess.Popen(
                    machine_wall.keeper(keeper_end.fileno()),
                    pass_fds=[keeper_end.fileno()],
                    stdin=null_device,
                    stdout=null_device,
                    stderr=null_device,
                    env=environment,
                    cwd="/",
                    start_new_session=True,
                )
            self._socket, self._owner = own_end, os.getpid()
        return self._socket

    def _close(self) -> None:
        process, line, is_owner = self._process, self._socket, self._owner == os.getpid()
        self._process = self._socket = None
        if line is not None:
            line.close()
        if process is not None and is_owner:
            # The process ends by itself when its socket is closed.
            try:
                process.wait(_SECONDS_TO_CLEAN)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()

    def close(self) -> None:
        """Ends the process."""
        with self._lock:
            self._close()


_keeper = _Keeper()
atexit.register(_keeper.close)


async def run_limited(
    command: Sequence[str],
    limits: Limits,
    files: Mapping[str, str] | None = None,
    stdin: str = "",
    line: socket.socket | None = None,
    readable: Sequence[str] = (),
) -> Finished:
    """Runs a program behind the wall; no process of it is left when this returns or is cancelled, and no file, or one
    that is being removed.

    It sees an environment without the parent's variables (no keys), the system's and Python's files to read, and a
    folder of its own, which is its working, home and temporary directory. `machine_wall.standing()` describes
    the wall on this machine.

    Args:
        command: the program and its arguments.
        limits: limits of the program with all its processes.
        files: name -> text of what lies in its folder at the start.
        stdin: text of its standard input.
        line: an open socket that it gets, as descriptor `LINE`, and that is closed here.
        readable: paths that it may read beside the usual.

    Returns:
        How it ended and what it printed, read from the descriptor that it wrote to: what it does with names changes
            nothing.

    Raises:
        OSError: no supervisor can be started.

    Example:
        >>> asyncio.run(run_limited(["echo", "hello"], Limits()))
        Finished(status=0, output='hello\\n', timed_out=False, errors='', limit='', refused='')
    """
    with contextlib.ExitStack() as stack:
        if line is not None:
            stack.enter_context(line)
        request = machine_wall.request(command, files or {}, limits, readable)
        # Files in memory have no name, so that no program can find them and none remains.
        packed, source, output, errors = (
            stack.enter_context(os.fdopen(os.memfd_create("program"), "w+b", buffering=0)) for _ in range(4)
        )
        packed.write(request.packed())
        source.write(stdin.encode(errors="replace"))
        source.seek(0)
        own_end, supervisor_end = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        stack.enter_context(own_end)
        own_end.setblocking(False)
        with supervisor_end:
            passed = [packed, supervisor_end, source, output, errors, *([] if line is None else [line])]
            _keeper.ask([stream.fileno() for stream in passed])
        if line is not None:
            line.close()
        status, limit, refused, leftover = await _answer(own_end, limits)
        max_bytes = limits.output_mb * 2**20
        output_text, error_text = (
            os.pread(stream.fileno(), max_bytes, 0).decode(errors="replace") for stream in (output, errors)
        )
    return Finished(
        status, output_text, limit == "wall", error_text, limit, refused or (leftover and f"would not end: {leftover}")
    )


async def _answer(line: socket.socket, limits: Limits) -> tuple[int, str, str, str]:
    """Waits for the supervisor's report, which comes soon after the wall time has passed or after this task is
    cancelled.
    """
    loop = asyncio.get_running_loop()
    reply = loop.create_task(loop.sock_recv(line, 2**16))
    limit = ""
    try:
        done, _ = await asyncio.wait([reply], timeout=limits.wall_seconds)
        limit = "" if done else "wall"
    finally:
        if not reply.done():
            line.shutdown(socket.SHUT_WR)
            # This also holds after a cancellation: the program's processes must be gone before the program is given up.
            await asyncio.shield(asyncio.wait([reply], timeout=_SECONDS_TO_CLEAN))
            reply.cancel()
    if not reply.done() or reply.cancelled() or reply.exception() is not None or not reply.result():
        return _STATUS_KILLED, limit, "the supervisor of the program ended without a word", ""
    status, ended_by, refused, leftover = json.loads(reply.result())
    return status, limit or ("" if ended_by == "stopped" else ended_by), refused, leftover
