"""Limits around a program that a model wrote: processor time, memory, wall time, file size, and no network and few processes where the system allows it."""

from __future__ import annotations

import asyncio
import contextlib
import math
import os
import signal
import socket
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import final

# A user namespace lets an ordinary user have a network namespace without any interface, and a process namespace whose first process takes all
# others with it when it dies, also those that left the process group.
_ISOLATE = ("unshare", "--user", "--map-root-user", "--net", "--pid", "--fork", "--kill-child")
_LIMITED = 'ulimit -c 0; ulimit -t "$1" && ulimit -v "$2" && ulimit -f "$3" || exit 125; shift 3; exec "$@"'

# Root is held to no number of processes, whatever its limit says; a real user of another number is, and files are read by the effective one.
_AS_NOBODY = ("setpriv", "--ruid", "65534")
# Whose users differ is not told when its parent dies. So a shell stays the first process: it is in the caller's process group, and takes all with it.
_FIRST = ("/bin/sh", "-c", '"$@"; exit $?', "sh")


@cache
def can_isolate() -> bool:
    """Whether this system lets an ordinary process give up the network (Linux with user namespaces)."""
    return _works([*_ISOLATE, "true"])


@cache
def can_count() -> bool:
    """Whether processes of a program can be counted by themselves: inside a user namespace, since Linux 5.14."""
    return can_isolate() and _works([*_alone(8), "/bin/sh", "-c", "true & wait $!"])


def _alone(num_processes: int) -> list[str]:
    return [*(_AS_NOBODY if os.geteuid() == 0 else ()), *_ISOLATE, *_FIRST, "prlimit", f"--nproc={num_processes}:{num_processes}", "--"]


def _works(command: list[str]) -> bool:
    with contextlib.suppress(OSError, subprocess.TimeoutExpired):
        return subprocess.run(command, capture_output=True, timeout=10, check=False).returncode == 0
    return False


@final
@dataclass(frozen=True)
class Limits:
    """What a program may use.

    Args:
        cpu_seconds: processor time of each process, rounded up to whole seconds.
        memory_mb: address space of each process, in megabytes.
        wall_seconds: time on the clock.
        output_mb: size of each file it writes, its output included.
        network: leave it the network.
        num_processes: processes and threads at one time, where they can be counted.
    """

    cpu_seconds: float = 5.0
    memory_mb: int = 1024
    wall_seconds: float = 10.0
    output_mb: int = 8
    network: bool = False
    num_processes: int = 64


@final
@dataclass(frozen=True)
class Finished:
    """How a program ended. `status` is 0 only where it ended well; `timed_out` where the wall time ended it."""

    status: int
    output: str
    timed_out: bool


async def run_limited(command: list[str], folder: Path, limits: Limits, stdin: str = "", line: socket.socket | None = None) -> Finished:
    """Runs a program in a folder of its own, under limits; nothing of it is left when this returns or is cancelled.

    It sees an environment without the parent's variables (no keys), and of the file system what the user may see: this stops accidents and
    cheap tricks, it is not a wall against a hostile program. Use a container or a virtual machine for that.

    Args:
        command: the program and its arguments.
        folder: an empty folder; its working, home and temporary directory, and where its output is kept.
        limits: what it may use.
        stdin: what it reads.
        line: an open socket that it gets, under the same number, and that is closed here.

    Returns:
        Its exit status and its standard output (standard error is kept apart, in `stderr.txt`). Limits that cannot be set give status 125.

    Example:
        >>> import tempfile
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     asyncio.run(run_limited(["echo", "hello"], Path(folder), Limits()))
        Finished(status=0, output='hello\\n', timed_out=False)
    """
    limited = ["/bin/sh", "-c", _LIMITED, "sh", str(math.ceil(limits.cpu_seconds)), str(limits.memory_mb * 1024), str(limits.output_mb * 2048), *command]
    if can_isolate():
        isolate = [*(_alone(limits.num_processes) if can_count() else _ISOLATE), *limited]
        limited = [part for part in isolate if part != "--net"] if limits.network else isolate
    # Ends the program also where this process was killed and can no longer do it.
    limited = ["timeout", "-s", "KILL", str(math.ceil(limits.wall_seconds) + 1), *limited]
    home = str(folder)
    # Where users differ the loader drops the first of the three names of the temporary directory.
    temporary = {"TMPDIR": home, "TEMP": home, "TMP": home}
    environment = {"PATH": os.environ.get("PATH", os.defpath), "HOME": home, **temporary, "LANG": "C.UTF-8", "PYTHONHASHSEED": "0"}
    # One thread each: many run at once, and every thread's stack counts as memory.
    environment |= dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1")
    # Output goes to files: the file size limit then also bounds a program that never stops printing. The input is a file without a name.
    with tempfile.TemporaryFile() as source, open(folder / "stdout.txt", "wb") as out, open(folder / "stderr.txt", "wb") as err:
        source.write(stdin.encode(errors="replace"))
        source.seek(0)
        with line or contextlib.nullcontext():
            process = await asyncio.create_subprocess_exec(
                *limited,
                cwd=folder,
                env=environment,
                stdin=source,
                stdout=out,
                stderr=err,
                start_new_session=True,
                pass_fds=() if line is None else (line.fileno(),),
            )
    timed_out = False
    try:
        await asyncio.wait_for(process.wait(), limits.wall_seconds)
    except TimeoutError:
        timed_out = True
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        status = await asyncio.shield(process.wait())
    return Finished(status, (folder / "stdout.txt").read_text(errors="replace"), timed_out)


def python() -> list[str]:
    """The command of this Python without user packages, and without the working directory on its path.

    Example:
        >>> python()[1:]
        ['-s', '-P', '-B']
    """
    return [sys.executable, "-s", "-P", "-B"]
