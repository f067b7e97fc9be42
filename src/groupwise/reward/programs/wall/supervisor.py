"""Supervises one program from outside its wall: measures the use of all its processes, ends them when a limit is
passed, and removes everything that the program left.
"""

from __future__ import annotations

import errno
import os
import select
import time
from signal import SIGKILL

from . import cgroup, kernel, program_process
from . import folder as folders
from .usage import Usage, descendants, unlinked_mb

TYPE_CHECKING = False
if TYPE_CHECKING:
    from .request import Request

_SECONDS_TO_END = 10.0
_MOMENT, _SECONDS_TO_REMOVE = 2.0, 3600.0
_LOOK = 0.05
_NAMESPACES = kernel.CLONE_NEWUSER | kernel.CLONE_NEWNS | kernel.CLONE_NEWIPC | kernel.CLONE_NEWPID


class Ended:
    """The end of a program: its status, the limit that ended it, and the processes and files that remain.

    Args:
        status: its exit status, or the negative number of the signal that ended it.
        limit: which limit ended it ("wall", "cpu", "memory", "disk", "processes"), "stopped" where it was told to end,
            or "".
        refused: why the wall could not be built; the program did not run.
        left: which processes would not end.
        folder: what could not be removed within a moment and is still to be; some file systems take milliseconds for
            every folder.
    """

    def __init__(
        self, status: int = -SIGKILL, limit: str = "", refused: str = "", left: str = "", folder: str = ""
    ) -> None:
        self.status, self.limit, self.refused, self.left, self.folder = status, limit, refused, left, folder

    def clean_up(self) -> None:
        """Removes the remaining folder; a caller that waited for the program need not wait for this."""
        if self.folder:
            folders.remove(self.folder, _SECONDS_TO_REMOVE)


def supervise(request: Request, descriptors: dict[int, int], stop: list[int]) -> Ended:
    """Runs one program behind its wall, until all its processes have ended.

    Args:
        request: the program and its wall.
        descriptors: number that the program sees -> open descriptor; closed here as soon as the program has them.
        stop: descriptors that become readable when the program is to end (somebody says so, or who asked is gone).
    """
    began = time.monotonic()
    kernel.adopt_orphans()
    # Files that are written in a namespace lie in memory, so the disk limit is added.
    limits = request.limits
    group = cgroup.make(limits["memory_mb"] + limits["disk_mb"], limits["num_processes"])
    folder = None if request.road == "namespaces" else f"{request.temporary}/groupwise-{os.urandom(8).hex()}"
    try:
        if folder is not None:
            _fill(folder, request)
        status_reader, status_writer = os.pipe()
        error_reader, error_writer = os.pipe()
        first_process = _start(request, folder, group, descriptors, status_writer, error_writer)
    except (kernel.Refused, OSError) as refused:
        if folder is not None:
            folders.remove(folder)
        if group is not None:
            group.remove()
        return Ended(125, refused=str(refused))
    for number in {*descriptors.values(), status_writer, error_writer}:
        os.close(number)
    limit = _watch(request, first_process, began, stop, folder)
    status, left = _end(first_process, status_reader, folder is None)
    if group is not None:
        limit = limit or ("memory" if group.ran_out else "")
        group.remove()
    leftover_folder = folder if folder is not None and not folders.remove(folder, _MOMENT) else ""
    refused = os.read(error_reader, 4096).decode(errors="replace") if _readable(error_reader) else ""
    return Ended(125 if refused else status, limit, refused, left, leftover_folder)


def _fill(path: str, request: Request) -> None:
    os.mkdir(path, 0o700)
    user = os.geteuid() if request.user is None else request.user
    group = os.getegid() if request.user is None else request.user
    program_process.write_files(request.files, path, user, group)
    os.chown(path, user, group)


def _start(
    request: Request,
    folder: str | None,
    group: cgroup.Cgroup | None,
    descriptors: dict[int, int],
    status_writer: int,
    error_writer: int,
) -> int:
    if folder is not None:
        begin_reader, begin_writer = os.pipe()
        first_process = os.fork()
        if first_process == 0:
            os.close(begin_writer)
            _child(
                lambda: os.read(begin_reader, 1) and program_process.become(request, folder, descriptors), error_writer
            )
        os.close(begin_reader)
        _let_begin(first_process, group, begin_writer)
        return first_process
    mapped_reader, begin_writer = os.pipe()
    first_process = kernel.clone(_NAMESPACES | (0 if request.limits["network"] else kernel.CLONE_NEWNET))
    if first_process == 0:
        os.close(begin_writer)
        _child(lambda: program_process.init_process(request, descriptors, status_writer, mapped_reader), error_writer)
    os.close(mapped_reader)
    try:
        _map_users(first_process, everyone=request.user is not None)
    except OSError as refused:
        os.close(begin_writer)
        raise kernel.Refused("map the users of a namespace", refused.errno or errno.EPERM) from refused
    _let_begin(first_process, group, begin_writer)
    return first_process


def _let_begin(first_process: int, group: cgroup.Cgroup | None, begin_writer: int) -> None:
    """Puts the program into its control group and then lets it begin."""
    try:
        if group is not None:
            group.take(first_process)
        os.write(begin_writer, b"1")
    except OSError as refused:
        raise kernel.Refused("put the program into its control group", refused.errno or errno.EPERM) from refused
    finally:
        os.close(begin_writer)


def _child(act: object, error_writer: int) -> None:
    try:
        act()  # pyright: ignore
    except BaseException as refused:
        os.write(error_writer, f"{refused}"[:4000].encode(errors="replace"))
    finally:
        os._exit(125)


def _map_users(process: int, everyone: bool) -> None:
    """Maps users into a user namespace under the same numbers: all users where this process may do that, otherwise its
    own user only.
    """
    for kind, number in (("uid", os.geteuid()), ("gid", os.getegid())):
        if everyone:
            with open(f"/proc/self/{kind}_map") as file:
                lines = "".join("{0} {0} {2}\n".format(*line.split()) for line in file)
        else:
            lines = f"{number} {number} 1\n"
            if kind == "gid":
                kernel.write(f"/proc/{process}/setgroups", "deny")
        kernel.write(f"/proc/{process}/{kind}_map", lines)


def _readable(place: int) -> bool:
    return bool(select.select([place], [], [], 0)[0])


def _watch(request: Request, first_process: int, began: float, stop: list[int], folder: str | None) -> str:
    """Waits for the end of a program or for a limit. Returns the name of the limit, or an empty string."""
    limits, usage = request.limits, Usage(first_process if folder is None else os.getpid())
    place = None if folder is None else os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    ended = _pidfd(first_process)
    poll = select.poll()
    for number in [*stop, *([] if ended is None else [ended])]:
        poll.register(number, select.POLLIN)
    try:
        while True:
            events = {number for number, _ in poll.poll(1000 * _LOOK)}
            if _has_ended(first_process):
                return ""
            if events - {ended}:
                return "stopped"
            if limits["wall_seconds"] is not None and time.monotonic() - began > limits["wall_seconds"]:
                return "wall"
            usage.count(limits["num_processes"], limits["memory_mb"])
            if limit := _passed(limits, usage, place):
                return limit
    finally:
        for number in (ended, place):
            if number is not None:
                os.close(number)


def _has_ended(first_process: int) -> bool:
    """Returns True where the first process has ended. That process is not reaped here; orphans of the program that have
    ended are.
    """
    while (child := os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)) is not None:
        if child.si_pid == first_process:
            return True
        os.waitpid(child.si_pid, 0)
    return False


def _passed(limits: dict[str, float | None], usage: Usage, folder: int | None) -> str:
    def over(name: str, used: float) -> bool:
        most = limits[name]
        return most is not None and used > most

    if over("memory_mb", usage.memory_mb):
        return "memory"
    if over("cpu_seconds", usage.cpu_seconds):
        return "cpu"
    if over("num_processes", usage.tasks):
        return "processes"
    if folder is not None and over(
        "disk_mb", folders.used_mb(folder) + unlinked_mb(os.getpid(), os.fstat(folder).st_dev)
    ):
        return "disk"
    return ""


def _pidfd(process: int) -> int | None:
    try:
        return os.pidfd_open(process)
    except (AttributeError, OSError):
        # Linux before 5.3 has no pidfd; the end is noticed at the next poll.
        return None


def _end(first_process: int, status_reader: int, namespaces: bool) -> tuple[int, str]:
    """Ends every process. Returns the program's status, and the processes that could not be ended."""
    until = time.monotonic() + _SECONDS_TO_END
    status = -SIGKILL
    if namespaces:
        # The kernel ends all other processes of the namespace before the first process counts as ended.
        os.kill(first_process, SIGKILL)
        while os.waitpid(first_process, os.WNOHANG)[0] == 0:
            if time.monotonic() > until:
                return status, f"processes of the program, below {first_process}"
            time.sleep(0.001)
        if text := os.read(status_reader, 100) if _readable(status_reader) else b"":
            status = int(text)
        return status, ""
    ended = _end_all(first_process, until)
    return (status, "processes of the program") if ended is None else (ended, "")


def _end_all(first_process: int, until: float) -> int | None:
    """Ends all descendants. Returns the exit status of the first process, or None where some descendants could not be
    ended.
    """
    statuses: dict[int, int] = {}
    while time.monotonic() < until:
        # The filter lets no process leave the process group, and one signal ends the group. No search comes first,
        # because a flood leaves no time for it.
        if first_process not in statuses:
            _signal(-first_process, SIGKILL)
        if _reaped(first_process, statuses):
            return statuses.get(first_process, -SIGKILL)
        time.sleep(0.001)
        # Without the filter some processes may have left the group.
        for number in descendants(os.getpid()):
            _signal(number, SIGKILL)
    return None


def _reaped(first_process: int, statuses: dict[int, int]) -> bool:
    """Reaps ended children and records their statuses. Returns True where no child is left."""
    try:
        while (ended := os.waitpid(-1, os.WNOHANG))[0] != 0:
            statuses[ended[0]] = os.waitstatus_to_exitcode(ended[1])
    except ChildProcessError:
        return True
    return False


def _signal(number: int, signal: int) -> None:
    try:
        os.kill(number, signal)
    except OSError:
        return
