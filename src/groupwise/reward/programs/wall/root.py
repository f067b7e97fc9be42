"""A root folder of its own: what a program may read, read-only, one bounded folder in memory for all that it writes,
and nothing else.
"""

from __future__ import annotations

import errno
import os

from . import kernel

WORK = "/tmp/groupwise"
"""The program's folder in there."""
_DEVICES = ("null", "zero", "full", "random", "urandom")
_DEVICE_LINKS = {
    "fd": "/proc/self/fd",
    "stdin": "/proc/self/fd/0",
    "stdout": "/proc/self/fd/1",
    "stderr": "/proc/self/fd/2",
    "shm": "/tmp",
}
_MAX_FILES = 16384
# What a mount keeps when it is made read-only: a user namespace may not take these away. Names as statvfs(2) and
# mount(2) number them.
_KEPT = ((2, 2), (4, 4), (8, 8), (1024, 1024), (2048, 2048), (4096, 1 << 21))
_OLD = "/.old"


def build(readable: list[str], links: list[tuple[str, str]], disk_mb: int, user: int, group: int) -> None:
    """Makes the new root and moves this process into it. Only for the first process of new namespaces.

    Args:
        readable: real paths of folders and files; none lies inside another.
        links: path and target of symbolic links.
        disk_mb: size of everything that is written, in all.
        user, group: whose the program's folder is.

    Raises:
        kernel.Refused: a mount that the kernel does not allow.
    """
    # Nothing of what follows may reach the mounts of others.
    kernel.mount("none", "/", flags=kernel.MS_REC | kernel.MS_PRIVATE)
    kernel.mount("tmpfs", "/tmp", "tmpfs", kernel.MS_NOSUID | kernel.MS_NODEV, "size=1m,nr_inodes=4096,mode=755")
    os.mkdir(f"/tmp{_OLD}")
    kernel.call("pivot_root", b"/tmp", f"/tmp{_OLD}".encode())
    os.chdir("/")
    for folder in ("/tmp", "/proc", "/dev", "/var"):
        os.mkdir(folder)
    os.symlink("/tmp", "/var/tmp")
    for name in _DEVICES:
        _bind(f"/dev/{name}")
    for name, target in _DEVICE_LINKS.items():
        os.symlink(target, f"/dev/{name}")
    inside = [path for path in readable if path.startswith("/tmp/")]
    for path in readable:
        if path not in inside:
            _bind(path)
    for path, target in links:
        _link(path, target)
    _mount_proc()
    _read_only("/")
    kernel.mount(
        "tmpfs",
        "/tmp",
        "tmpfs",
        kernel.MS_NOSUID | kernel.MS_NODEV,
        f"size={disk_mb}m,nr_inodes={_MAX_FILES},mode=1777",
    )
    for path in inside:
        _bind(path)
        _read_only(path)
    for path, target in links:
        _link(path, target)
    os.mkdir(WORK, 0o700)
    os.chown(WORK, user, group)
    kernel.unmount(_OLD)


def _bind(path: str) -> None:
    source = _OLD + path
    if not os.path.exists(source):
        return
    if os.path.isdir(source):
        os.makedirs(path, exist_ok=True)
    else:
        os.makedirs(os.path.dirname(path), exist_ok=True)
        os.close(os.open(path, os.O_WRONLY | os.O_CREAT, 0o644))
    kernel.mount(source, path, flags=kernel.MS_BIND | kernel.MS_REC)


def _link(path: str, target: str) -> None:
    # One that lies in a folder that is there as a whole is there with it, and one below /tmp can be made only in the
    # new one.
    try:
        if not os.path.lexists(path):
            os.makedirs(os.path.dirname(path), exist_ok=True)
            os.symlink(target, path)
    except OSError as error:
        if error.errno != errno.EROFS:
            raise


def _mount_proc() -> None:
    try:
        # The first process is shown to nobody: its command holds paths of the machine.
        kernel.mount("proc", "/proc", "proc", kernel.MS_NOSUID | kernel.MS_NODEV | kernel.MS_NOEXEC, "hidepid=2")
    except kernel.Refused:
        # A container that hides parts of its own /proc refuses a fresh one. A program does without.
        return


def _read_only(path: str) -> None:
    try:
        return kernel.make_read_only(path)
    except kernel.Refused as refused:
        if refused.number != errno.ENOSYS:
            raise
    # Before Linux 5.12: one by one.
    with open(f"{_OLD}/proc/self/mountinfo") as file:
        points = [line.split()[4].encode().decode("unicode_escape") for line in file]
    for point in points:
        if (point == path or point.startswith(path.rstrip("/") + "/")) and not point.startswith(_OLD):
            flags = sum(mount_flag for statvfs_flag, mount_flag in _KEPT if os.statvfs(point).f_flag & statvfs_flag)
            kernel.mount(
                "none", point, flags=kernel.MS_REMOUNT | kernel.MS_BIND | kernel.MS_RDONLY | kernel.MS_NOSUID | flags
            )
