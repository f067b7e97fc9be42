"""A root folder for the program: its readable paths, mounted read-only, and one bounded folder in memory for everything
that it writes.
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
# Flags that a mount must keep when it is made read-only, because a user namespace may not remove them: numbers of
# statvfs(2) and of mount(2).
_KEPT = ((2, 2), (4, 4), (8, 8), (1024, 1024), (2048, 2048), (4096, 1 << 21))
_OLD = "/.old"


def build(readable: list[str], links: list[tuple[str, str]], disk_mb: int, user: int, group: int) -> None:
    """Builds the new root and moves this process into it. Only the first process of new namespaces may call it.

    Args:
        readable: real paths of folders and files; none lies inside another.
        links: path and target of symbolic links.
        disk_mb: size of everything that is written, in all.
        user, group: whose the program's folder is.

    Raises:
        kernel.Refused: a mount that the kernel does not allow.
    """
    # The mounts below must not propagate to other namespaces.
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
    # A link inside a mounted folder exists already, and a link below /tmp can be created only after the new /tmp is
    # mounted.
    try:
        if not os.path.lexists(path):
            os.makedirs(os.path.dirname(path), exist_ok=True)
            os.symlink(target, path)
    except OSError as error:
        if error.errno != errno.EROFS:
            raise


def _mount_proc() -> None:
    try:
        # The first process is hidden from the program, because its command line contains paths of the machine.
        kernel.mount("proc", "/proc", "proc", kernel.MS_NOSUID | kernel.MS_NODEV | kernel.MS_NOEXEC, "hidepid=2")
    except kernel.Refused:
        # A container that hides parts of its own /proc refuses a new one; the program then has no /proc.
        return


def _read_only(path: str) -> None:
    try:
        return kernel.make_read_only(path)
    except kernel.Refused as refused:
        if refused.number != errno.ENOSYS:
            raise
    # Linux before 5.12 has no recursive call, so every mount is changed by itself.
    with open(f"{_OLD}/proc/self/mountinfo") as file:
        points = [line.split()[4].encode().decode("unicode_escape") for line in file]
    for point in points:
        if (point == path or point.startswith(path.rstrip("/") + "/")) and not point.startswith(_OLD):
            flags = sum(mount_flag for statvfs_flag, mount_flag in _KEPT if os.statvfs(point).f_flag & statvfs_flag)
            kernel.mount(
                "none", point, flags=kernel.MS_REMOUNT | kernel.MS_BIND | kernel.MS_RDONLY | kernel.MS_NOSUID | flags
            )
