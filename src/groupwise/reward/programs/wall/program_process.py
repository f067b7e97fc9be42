"""The first steps of a program's process: it gives up all rights that the program must not have, for good, and then
executes the program.
"""

from __future__ import annotations

import contextlib
import os
import resource
from signal import SIG_DFL, SIG_SETMASK, SIGPIPE, SIGXFSZ, pthread_sigmask, signal

from . import kernel, landlock, root, seccomp

TYPE_CHECKING = False
if TYPE_CHECKING:
    from .request import Request

_DEVICES = ["/dev/null", "/dev/zero", "/dev/full", "/dev/random", "/dev/urandom"]
_MAX_OPEN = 512
NOBODY = 65534


def become(request: Request, folder: str, descriptors: dict[int, int]) -> None:
    """Replaces this process by the program. Does not return.

    Args:
        request: the program and its wall.
        folder: its working, home and temporary directory.
        descriptors: number that the program sees -> open descriptor.

    Raises:
        kernel.Refused, OSError: it cannot be built, or there is no such program.
    """
    os.setsid()
    # This comes before the change of user, which may take the right to reach the folder by its path.
    os.chdir(folder)
    os.umask(0o077)
    for number, place in descriptors.items():
        os.dup2(place, number)
    pthread_sigmask(SIG_SETMASK, [])
    for ignored in (SIGPIPE, SIGXFSZ):
        signal(ignored, SIG_DFL)
    _limit(request)
    kernel.drop_bounds()
    if request.user is not None:
        os.setgroups([])
        os.setresgid(request.user, request.user, request.user)
        os.setresuid(request.user, request.user, request.user)
    elif os.geteuid() == 0 and request.road != "namespaces":
        # The kernel does not limit the number of root's processes. It does limit a different real user, while files are
        # read by the effective user. A process that is root only inside a namespace without other users is limited
        # already.
        with contextlib.suppress(OSError):
            os.setresuid(NOBODY, 0, 0)
    if request.road != "namespaces":
        kernel.die_with_parent()
    kernel.never_more_privileges()
    kernel.drop_capabilities()
    if request.landlock:
        landlock.restrict(request.landlock, request.readable, [*_DEVICES, folder], request.limits["network"])
    if request.filter:
        seccomp.install(bytes.fromhex(request.filter))
    os.execvpe(request.command[0], request.command, _environment(request.path, folder))


def _environment(path: str, folder: str) -> dict[str, str]:
    """Returns an environment without the trainer's variables, which may contain keys."""
    homes = dict.fromkeys(("HOME", "TMPDIR", "TEMP", "TMP"), folder)
    # Libraries use one thread: many programs run at once, and every thread's stack counts as memory.
    threads = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1")
    return {"PATH": path, "LANG": "C.UTF-8", "PYTHONHASHSEED": "0", **homes, **threads}


def _limit(request: Request) -> None:
    limits, mib = request.limits, 2**20
    resource_limits = {
        resource.RLIMIT_CORE: 0,
        resource.RLIMIT_AS: limits["memory_mb"] * mib,
        resource.RLIMIT_FSIZE: limits["output_mb"] * mib,
        resource.RLIMIT_NOFILE: _MAX_OPEN,
        resource.RLIMIT_MSGQUEUE: 0,
        resource.RLIMIT_NPROC: (
            limits["num_processes"] if request.road == "namespaces" and request.counts_alone else request.max_user_tasks
        ),
    }
    if limits["cpu_seconds"] is not None:
        resource_limits[resource.RLIMIT_CPU] = limits["cpu_seconds"]
    for kind, number in resource_limits.items():
        most = resource.getrlimit(kind)[1]
        number = number if most == resource.RLIM_INFINITY else min(number, most)
        resource.setrlimit(kind, (number, number))


def init_process(request: Request, descriptors: dict[int, int], status_writer: int, mapped_reader: int) -> None:
    """Runs as the first process of new namespaces: builds the root, starts the program and waits for it. When this
    process ends, the kernel ends all others of the namespace. Does not return.

    Args:
        request: the program and its wall.
        descriptors: number that the program sees -> open descriptor.
        status_writer: descriptor that the program's exit status is written to.
        mapped_reader: descriptor from which one byte comes as soon as the users of the namespace are mapped.

    Raises:
        kernel.Refused, OSError: it cannot be built, or there is no such program.
    """
    kernel.die_with_parent()
    if not os.read(mapped_reader, 1):
        os._exit(1)
    user = os.geteuid() if request.user is None else request.user
    group = os.getegid() if request.user is None else request.user
    root.build(request.readable, request.links, request.limits["disk_mb"], user, group)
    write_files(request.files, root.WORK, user, group)
    program = os.fork()
    if program == 0:
        become(request, root.WORK, descriptors)
    # This process holds data that the program must not read, so it is hidden.
    kernel.hide()
    kernel.never_more_privileges()
    kernel.drop_capabilities()
    kernel.die_with_parent()
    os.closerange(0, status_writer)
    os.closerange(status_writer + 1, _MAX_OPEN)
    while True:
        number, status = os.waitpid(-1, 0)
        if number == program:
            os.write(status_writer, b"%d" % os.waitstatus_to_exitcode(status))
            os._exit(0)


def write_files(files: dict[str, str], folder: str, user: int, group: int) -> None:
    """Writes files into the program's folder.

    Args:
        files: name -> text.
        folder: where.
        user, group: numbers of the owner of the files.
    """
    for name, content in files.items():
        path = f"{folder}/{name}"
        with open(path, "w", encoding="utf-8", errors="replace") as file:
            file.write(content)
        os.chown(path, user, group)
