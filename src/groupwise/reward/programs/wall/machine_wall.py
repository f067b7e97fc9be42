"""The wall that this machine allows, and commands that run behind it."""

from __future__ import annotations

import math
import os
import stat
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import cache
from pathlib import Path
from typing import final

# Importing these modules also compiles them, so that the processes of `_START` read the compiled files.
from groupwise.reward.programs.wall import cgroup, landlock, program_process, seccomp, supervisor_main
from groupwise.reward.programs.wall.limits import Limits
from groupwise.reward.programs.wall.readable_paths import python, readable
from groupwise.reward.programs.wall.request import Request

_START = "import sys; sys.path.append({folder!r}); from wall.supervisor_main import main; sys.path.pop(); main()"
_TRIAL = (
    "import os, tempfile; tempfile.TemporaryFile(dir=os.environ['HOME']).write(b'x'); open(os.environ['HOME'] + '/x',"
    " 'w').close()"
)
_SECONDS = 60.0
# Added to the user's current number of processes: where the kernel cannot count the processes of one program
# separately, it stops only a flood of them.
_MORE_TASKS = 1024
_COUNTS_ALONE = (5, 14)


@final
@dataclass(frozen=True)
class Wall:
    """The wall around a program.

    Args:
        road: "namespaces", "landlock", or "none".
        landlock: version of Landlock; 0 where it is not used.
        filtered: whether system calls are filtered.
        user: number of the user that programs become; None where it is this one.
        refused: what the kernel said to the roads before this one.
        bounded: whether the kernel bounds the memory and the number of a program's processes together; otherwise both
            are counted.
    """

    road: str
    landlock: int = 0
    filtered: bool = True
    user: int | None = None
    refused: str = ""
    bounded: bool = True

    @property
    def stands(self) -> bool:
        """True where the wall keeps a hostile program from the files and processes of other users."""
        return self.road != "none" and self.filtered

    @property
    def denies_network(self) -> bool:
        """True where a program behind the wall has no network."""
        return self.road == "namespaces" or self.filtered

    @property
    def missing(self) -> str:
        """The parts of the wall that this machine does not allow, in sentences; empty where no part is missing.

        Example:
            >>> Wall("namespaces").missing
            ''
        """
        sums = (
            ""
            if self.bounded
            else (
                "no control group may be made, so the memory and the processes of a program are counted 20 times a"
                " second"
            )
        )
        if self.road == "namespaces":
            kernel = (
                ""
                if self.filtered
                else (
                    f"a filter of system calls is refused ({self.refused}), so programs reach more of the kernel than"
                    " they need"
                )
            )
            return "; ".join(filter(None, [kernel, sums]))
        if self.road == "landlock":
            signals = (
                ""
                if self.landlock >= 6
                else ", and may signal no process, not even their own (Linux 6.12 would allow that)"
            )
            fewer = (
                f"namespaces are refused ({self.refused}): programs run behind Landlock and a filter of system calls,"
                f" and have neither /proc nor shared memory (so no multiprocessing.Pool){signals}"
            )
            return "; ".join(filter(None, [fewer, sums]))
        return (
            f"namespaces and Landlock are refused ({self.refused}): programs may read what this user may, and change"
            " its files; run only what you trust, or use a machine that allows one of them"
        )


@cache
def standing() -> Wall:
    """Returns the best wall that this machine allows, found by running an empty program behind each candidate.

    Example:
        >>> standing().road in ("namespaces", "landlock", "none")
        True
    """
    refused: list[str] = []
    for wall in _candidates():
        why = tried(wall)
        if not why:
            return replace(wall, refused="; ".join(dict.fromkeys(refused)), bounded=cgroup.available())
        refused.append(why)
    return Wall("none", filtered=False, refused="; ".join(dict.fromkeys(refused)))


def _candidates() -> list[Wall]:
    # A program of root can read root's files even without capabilities, so it runs as another user where that user can
    # still reach Python.
    users = [program_process.NOBODY, None] if os.geteuid() == 0 else [None]
    abi = landlock.version()
    roads = [
        ("namespaces", 0, True),
        ("namespaces", 0, False),
        *([("landlock", abi, True)] if abi else []),
        ("none", 0, True),
    ]
    return [Wall(road, version, filtered, user) for road, version, filtered in roads for user in users]


def tried(wall: Wall) -> str:
    """Runs an empty program behind a wall. Returns the reason why the program does not run; empty where it runs."""
    command = behind([*python(), "-c", _TRIAL], Limits(cpu_seconds=_SECONDS, wall_seconds=_SECONDS), wall=wall)
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=_SECONDS + 30, check=False, stdin=subprocess.DEVNULL
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return f"{type(error).__name__}: {error}"
    return "" if done.returncode == 0 else (done.stderr.strip().splitlines() or [f"status {done.returncode}"])[-1]


def behind(command: Sequence[str], limits: Limits, further: Sequence[str] = (), wall: Wall | None = None) -> list[str]:
    """Returns the command that runs another command behind the wall, for a process that lives long or that other code
    starts.

    Start it as you would start the other, with pipes or files of your own: standard input, output, errors and the
    descriptors that are passed on reach the program, and of the environment nothing. It ends with the program's status
    (128 and the number of a signal, 125 where the wall cannot be built), and not before all the program's processes
    have. SIGTERM ends them; so does the end of the process that started it, however that comes.

    Args:
        command: the program and its arguments; a Python is `python()`.
        limits: what it may use; `wall_seconds = None` and `cpu_seconds = None` for one that serves.
        further: paths that it may read beside the system's and Python's.
        wall: another than the best that this machine allows.

    Example:
        >>> subprocess.run(behind(["echo", "hello"], Limits()), capture_output=True, text=True).stdout
        'hello\\n'
    """
    return [*_python_inside(), "single", request(command, {}, limits, further, wall).packed().hex()]


def keeper(number: int) -> list[str]:
    """Returns the command of the process that forks supervisors."""
    return [*_python_inside(), "serve", str(number)]


def _python_inside() -> list[str]:
    folder = os.path.dirname(os.path.dirname(os.path.abspath(supervisor_main.__file__)))
    return [sys.executable, "-I", "-S", "-B", "-c", _START.format(folder=folder)]


def request(
    command: Sequence[str],
    files: Mapping[str, str],
    limits: Limits,
    further: Sequence[str] = (),
    wall: Wall | None = None,
) -> Request:
    """Describes one program and its wall in the form that the processes of the wall read.

    Args:
        command: the program and its arguments.
        files: name -> text of what lies in its folder at the start.
        further: paths that it may read beside the system's and Python's.
        wall: another than the best that this machine allows.
    """
    wall = wall or standing()
    if wall.user is not None and any(map(_is_private, further)):
        # The user nobody could not read paths that are private to this user.
        wall = replace(wall, user=None)
    paths, links = readable(limits.network, tuple(further))
    plain = asdict(limits)
    if limits.cpu_seconds is not None:
        plain["cpu_seconds"] = math.ceil(limits.cpu_seconds)
    return Request(
        command=list(command),
        files=dict(files),
        road=wall.road,
        landlock=wall.landlock,
        filter=_filter(wall.road == "namespaces", limits.network, wall.landlock >= 6) if wall.filtered else "",
        user=wall.user,
        readable=paths,
        links=links,
        path=os.environ.get("PATH", os.defpath),
        temporary=os.path.realpath(tempfile.gettempdir()),
        max_user_tasks=_tasks_of_user(program_process.NOBODY if os.geteuid() == 0 else os.geteuid()) + _MORE_TASKS,
        counts_alone=_kernel() >= _COUNTS_ALONE,
        limits=plain,
    )


def _is_private(path: str) -> bool:
    public_bits = stat.S_IROTH | (stat.S_IXOTH if os.path.isdir(path) else 0)
    return os.path.exists(path) and os.stat(path).st_mode & public_bits != public_bits


def _kernel() -> tuple[int, ...]:
    return tuple(int(part) for part in os.uname().release.split("-")[0].split(".")[:2])


@cache
def _filter(namespaces: bool, network: bool, signals: bool) -> str:
    return seccomp.filter_program(namespaces, network, signals).hex()


@cache
def _tasks_of_user(owner: int) -> int:
    """Counts the processes and threads of a user, once: later calls return the first count."""
    tasks = 0
    for process in Path("/proc").glob("[0-9]*"):
        try:
            if process.stat().st_uid == owner:
                tasks += len(list((process / "task").iterdir()))
        except OSError:
            continue
    return tasks
