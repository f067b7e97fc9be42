"""Two ways to supervise programs: a process for one program, which takes the program's place in a command, and a
process that forks a supervisor for every request.
"""

from __future__ import annotations

import json
import os
import sys
from signal import SIGINT, SIGTERM, signal

from .request import Request
from .supervisor import Ended, supervise

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

_MAX_MESSAGE, _NUMBERS_OF_PROGRAMS = 4096, 8


def run_single(packed: str) -> None:
    """Runs one program in the place of this process, with its descriptors and its exit status. A terminating signal, or
    the end of the process that started this one, ends the program too.

    Args:
        packed: of the request, in base 16.
    """
    request = Request.unpacked(bytes.fromhex(packed))
    parent = _parent()
    stop_reader, stop_writer = os.pipe()

    def request_stop(*_: Any) -> None:
        os.write(stop_writer, b"1")

    for number in (SIGTERM, SIGINT):
        signal(number, request_stop)
    # Inheritable descriptors belong to the program; this process keeps none of the program's pipes open.
    passed = {number: number for number in _open() if os.get_inheritable(number)}
    reports = os.dup(2)
    ended = supervise(request, passed, [stop_reader, *parent])
    ended.clean_up()
    if ended.refused:
        os.write(reports, f"{ended.refused}\n".encode())
    os._exit(ended.status if ended.status >= 0 else 128 - ended.status)


def _open() -> list[int]:
    return [int(name) for name in os.listdir("/proc/self/fd") if os.path.exists(f"/proc/self/fd/{name}")]


def _parent() -> list[int]:
    try:
        return [os.pidfd_open(os.getppid())]
    except (AttributeError, OSError):
        return []


def serve(number: int) -> None:
    """Forks a supervisor for every message, until no process is left that could send one."""
    import select
    import socket

    # The descriptor numbers that a program expects stay free for it.
    while os.open(os.devnull, os.O_RDWR) < _NUMBERS_OF_PROGRAMS:
        pass
    parent = _parent()
    source = socket.socket(fileno=number)
    poll = select.poll()
    for place in (number, *parent):
        poll.register(place, select.POLLIN)
    while True:
        events = {place for place, _ in poll.poll(1000)}
        while _reaped():
            pass
        if events & set(parent):
            return
        if number not in events:
            continue
        message, descriptors, _, _ = socket.recv_fds(source, 64, 8, socket.MSG_CMSG_CLOEXEC)
        if not message:
            return
        if os.fork() == 0:
            source.close()
            _one(descriptors, parent)
        for place in descriptors:
            os.close(place)


def _reaped() -> bool:
    try:
        return os.waitpid(-1, os.WNOHANG)[0] > 0
    except ChildProcessError:
        return False


def _one(descriptors: list[int], parent: list[int]) -> None:
    """Runs one program. The first descriptor holds the request, the second is the line back to the sender, the
    remaining ones belong to the program.
    """
    content, line, *others = descriptors
    try:
        with open(content, "rb") as file:
            file.seek(0)
            request = Request.unpacked(file.read())
        ended = supervise(request, dict(enumerate(others)), [line, *parent])
    except BaseException as error:
        ended = Ended(refused=f"{type(error).__name__}: {error}")
    try:
        os.write(line, json.dumps([ended.status, ended.limit, ended.refused[:_MAX_MESSAGE], ended.left]).encode())
        os.close(line)
        ended.clean_up()
    finally:
        os._exit(0)


def main() -> None:
    """Runs the mode that the arguments of this Python name: "single" or "serve"."""
    mode, argument = sys.argv[1:3]
    if mode == "single":
        run_single(argument)
    else:
        serve(int(argument))
