"""Runs one program under Landlock and a filter of system calls, on machines that refuse namespaces: starts it in a
folder of its own, ends all its processes with it, and removes the folder.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import json
import os
import signal
import subprocess
import sys
import time

from . import landlock, seccomp
from .kernel import Refused, prctl, syscall
from .usage import descendants

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

_DEVICES = ["/dev/null", "/dev/zero", "/dev/full", "/dev/random", "/dev/urandom"]
_NOBODY = 65534
_LOOK = 0.05
_SECONDS_TO_END = 10.0
_MAX_FILES, _BLOCK = 16384, 512
_PR_SET_PDEATHSIG, _PR_CAPBSET_DROP, _PR_SET_CHILD_SUBREAPER, _PR_SET_NO_NEW_PRIVS = 1, 24, 36, 38
_CAPABILITY_VERSION_3, _MOST_CAPABILITIES = 0x20080522, 64
_AWAITED = {signal.SIGTERM, signal.SIGINT, signal.SIGCHLD}


def main() -> None:
    """Runs the program that the file of the given descriptor describes, and ends with its status."""
    with open(int(sys.argv[1])) as file:
        request = json.load(file)
    signal.pthread_sigmask(signal.SIG_BLOCK, _AWAITED)
    prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)
    prctl(_PR_SET_CHILD_SUBREAPER, 1)
    folder = request["folder"]
    os.mkdir(folder, 0o700)
    program = os.fork()
    if program == 0:
        try:
            _fill(folder, request)
            _become(request, folder)
        except (OSError, Refused) as refused:
            os.write(2, f"{refused}\n".encode())
            os._exit(125)
    # Only the program holds its pipes.
    for stream in (0, 1):
        os.dup2(os.open(os.devnull, os.O_RDWR), stream)
    limit = _watch(program, folder, request["disk_mb"])
    status = _end_all(program)
    if request["status"] is not None:
        os.write(request["status"], json.dumps({"exit-code": status, "limit": limit}).encode())
    # The program may have removed the permissions of its folders.
    subprocess.run(["sh", "-c", 'chmod -R u+rwX "$0"; rm -rf "$0"', folder], stderr=subprocess.DEVNULL, check=False)
    os._exit(status)


def _fill(folder: str, request: dict[str, Any]) -> None:
    for name, content in request["files"].items():
        with open(f"{folder}/{name}", "w", encoding="utf-8", errors="replace") as file:
            file.write(content)


def _become(request: dict[str, Any], folder: str) -> None:
    """Gives up every right for good and replaces this process by the program."""
    # Imported here because other systems than Unix lack it, and import this module to compile it.
    import resource

    os.setsid()
    os.chdir(folder)
    os.umask(0o077)
    signal.pthread_sigmask(signal.SIG_SETMASK, [])
    for ignored in (signal.SIGPIPE, signal.SIGXFSZ):
        signal.signal(ignored, signal.SIG_DFL)
    for name, number in request["limits"].items():
        kind = getattr(resource, f"RLIMIT_{name}")
        most = resource.getrlimit(kind)[1]
        number = number if most == resource.RLIM_INFINITY else min(number, most)
        resource.setrlimit(kind, (number, number))
    # If executing a program could add capabilities, root would lose its user there. The call fails beyond the kernel's
    # last capability. It also fails for other users, who cannot gain any.
    with contextlib.suppress(Refused):
        for capability in range(_MOST_CAPABILITIES):
            prctl(_PR_CAPBSET_DROP, capability)
    if os.geteuid() == 0:
        # The kernel does not limit the number of root's processes. It does limit a different real user, while files are
        # read by the effective user.
        with contextlib.suppress(OSError):
            os.setresuid(_NOBODY, 0, 0)
    prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    prctl(_PR_SET_NO_NEW_PRIVS, 1)
    header, no_rights = (ctypes.c_uint32 * 2)(_CAPABILITY_VERSION_3, 0), (ctypes.c_uint32 * 6)()
    syscall("capset", ctypes.byref(header), ctypes.byref(no_rights))
    if request["landlock"]:
        landlock.restrict(request["landlock"], request["readable"], [*_DEVICES, folder], request["network"])
    if request["filter"]:
        seccomp.install(bytes.fromhex(request["filter"]))
    os.execvpe(request["command"][0], request["command"], request["environment"])


def _watch(program: int, folder: str, disk_mb: float) -> str:
    """Waits until the program ends, has to end, or has written too much. Returns "disk" in the last case, else an empty
    string.
    """
    while os.waitid(os.P_PID, program, os.WEXITED | os.WNOHANG | os.WNOWAIT) is None:
        heard = signal.sigtimedwait(_AWAITED, _LOOK)
        if heard is not None and heard.si_signo != signal.SIGCHLD:
            return ""
        if heard is None and _written_mb(folder) > disk_mb:
            return "disk"
    return ""


def _written_mb(folder: str) -> float:
    """Returns the megabytes in a folder and in deleted files that are still open; infinite where there are too many
    files, or folders nested too deep for a path.
    """
    size, num_files, waiting = _unlinked_bytes(os.stat(folder).st_dev), 0, [folder]
    while waiting:
        try:
            with os.scandir(waiting.pop()) as entries:
                for entry in entries:
                    num_files += 1
                    if num_files > _MAX_FILES:
                        return float("inf")
                    if entry.is_dir(follow_symlinks=False):
                        waiting.append(entry.path)
                    size += entry.stat(follow_symlinks=False).st_blocks * _BLOCK
        except OSError as error:
            if error.errno == errno.ENAMETOOLONG:
                return float("inf")
            # The folder was removed in between, or the program removed its permissions and cannot write there.
            continue
    return size / 2**20


def _unlinked_bytes(device: int) -> int:
    sizes: dict[int, int] = {}
    for number in descendants(os.getpid()):
        with contextlib.suppress(OSError):
            for name in os.listdir(f"/proc/{number}/fd"):
                status = os.stat(f"/proc/{number}/fd/{name}")
                if status.st_dev == device and status.st_nlink == 0:
                    sizes[status.st_ino] = status.st_blocks * _BLOCK
    return sum(sizes.values())


def _end_all(program: int) -> int:
    """Ends all descendants. Returns the program's exit status in a shell's notation."""
    until, status = time.monotonic() + _SECONDS_TO_END, 128 + signal.SIGKILL
    with contextlib.suppress(ChildProcessError):
        while time.monotonic() < until:
            # The filter lets no process leave the process group, and one signal ends the group. The signal comes before
            # any search, because a flood of processes leaves no time for one. Without the filter some processes may
            # have left the group.
            with contextlib.suppress(OSError):
                os.killpg(program, signal.SIGKILL)
            while (ended := os.waitpid(-1, os.WNOHANG))[0] != 0:
                if ended[0] == program:
                    code = os.waitstatus_to_exitcode(ended[1])
                    status = code if code >= 0 else 128 - code
            for number in descendants(os.getpid()):
                with contextlib.suppress(OSError):
                    os.kill(number, signal.SIGKILL)
            time.sleep(0.001)
    return status
