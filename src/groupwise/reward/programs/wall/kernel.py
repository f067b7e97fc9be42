"""The system calls that Python has no function for. Each raises `Refused`, naming the call and the kernel's error."""

from __future__ import annotations

import ctypes
import errno
import os

_libc = ctypes.CDLL(None, use_errno=True)
_libc.syscall.restype = ctypes.c_long
# PyDLL keeps the interpreter's lock during a clone: the child has no other thread that could release it.
_clone = ctypes.PyDLL(None, use_errno=True).syscall
_clone.restype = ctypes.c_long

MACHINES = ("x86_64", "aarch64")
_PLACE = MACHINES.index(os.uname().machine) if os.uname().machine in MACHINES else None
_CALLS = {
    "clone": (56, 220),
    "pivot_root": (155, 41),
    "capset": (126, 91),
    "mount_setattr": (442, 442),
    "landlock_create_ruleset": (444, 444),
    "landlock_add_rule": (445, 445),
    "landlock_restrict_self": (446, 446),
    "seccomp": (317, 277),
}

CLONE_NEWNS, CLONE_NEWIPC, CLONE_NEWUSER, CLONE_NEWPID, CLONE_NEWNET = (
    0x20000,
    0x8000000,
    0x10000000,
    0x20000000,
    0x40000000,
)
MS_RDONLY, MS_NOSUID, MS_NODEV, MS_NOEXEC, MS_REMOUNT, MS_BIND, MS_REC, MS_PRIVATE = (
    1,
    2,
    4,
    8,
    32,
    4096,
    16384,
    1 << 18,
)
_MNT_DETACH, _AT_RECURSIVE, _AT_FDCWD = 2, 0x8000, -100
(
    _PR_SET_PDEATHSIG,
    _PR_SET_DUMPABLE,
    _PR_CAPBSET_DROP,
    _PR_SET_CHILD_SUBREAPER,
    _PR_SET_NO_NEW_PRIVS,
    _PR_CAP_AMBIENT,
) = (
    1,
    4,
    24,
    36,
    38,
    47,
)
_CAPABILITY_VERSION_3, _NUM_CAPABILITIES, _SIGCHLD, _SIGKILL = 0x20080522, 64, 17, 9


class Refused(Exception):
    """A system call that the kernel or its administrator does not allow: the wall cannot be built in this way.

    Args:
        request: the call that was refused.
        number: of the error, as `errno` has them.
    """

    def __init__(self, request: str, number: int) -> None:
        super().__init__(f"{request}: {os.strerror(number)}")
        self.number = number


def write(path: str, text: str) -> None:
    """Writes a setting into a file of the kernel's own, in one call and without a buffer."""
    place = os.open(path, os.O_WRONLY)
    try:
        os.write(place, text.encode())
    finally:
        os.close(place)


def _done(request: str, result: int) -> int:
    if result < 0:
        raise Refused(request, ctypes.get_errno())
    return result


def call(name: str, *arguments: object) -> int:
    """Does a system call by its number on this machine.

    Args:
        arguments: integers, bytes, pointers or None.

    Raises:
        Refused: the kernel said no.
    """
    if _PLACE is None:
        raise Refused(f"{name} on a machine of kind {os.uname().machine}", errno.ENOSYS)
    converted = [ctypes.c_long(argument) if isinstance(argument, int) else argument for argument in arguments]
    return _done(name, (_clone if name == "clone" else _libc.syscall)(ctypes.c_long(_CALLS[name][_PLACE]), *converted))


def clone(flags: int) -> int:
    """Forks into new namespaces: 0 in the child, the child's number in the parent."""
    return call("clone", flags | _SIGCHLD, 0, 0, 0, 0)


def mount(source: str, target: str, kind: str | None = None, flags: int = 0, options: str | None = None) -> None:
    """Mounts a file system, as mount(2) does."""
    arguments = (
        source.encode(),
        target.encode(),
        kind and kind.encode(),
        ctypes.c_ulong(flags),
        options and options.encode(),
    )
    _done(f"mount {kind or source} on {target}", _libc.mount(*arguments))


def unmount(target: str) -> None:
    """Takes a mount away as soon as nobody uses it."""
    _done(f"umount {target}", _libc.umount2(target.encode(), _MNT_DETACH))


def make_read_only(path: str) -> None:
    """Makes a mount and everything mounted below it read-only (Linux 5.12)."""
    attributes = (ctypes.c_uint64 * 4)(MS_RDONLY | MS_NOSUID, 0, 0, 0)
    call("mount_setattr", _AT_FDCWD, path.encode(), _AT_RECURSIVE, ctypes.byref(attributes), ctypes.sizeof(attributes))


def die_with_parent() -> None:
    """Makes the kernel kill this process when the thread that started it has ended."""
    _done("prctl PDEATHSIG", _libc.prctl(_PR_SET_PDEATHSIG, _SIGKILL, 0, 0, 0))


def adopt_orphans() -> None:
    """Makes this process the parent of what its descendants leave behind."""
    _done("prctl CHILD_SUBREAPER", _libc.prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0))


def hide() -> None:
    """Keeps processes of the same user from looking into this one."""
    _done("prctl DUMPABLE", _libc.prctl(_PR_SET_DUMPABLE, 0, 0, 0, 0))


def never_more_privileges() -> None:
    """Forbids that a program started by this process gains rights from its owner or its capabilities."""
    _done("prctl NO_NEW_PRIVS", _libc.prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0))


def drop_bounds() -> None:
    """Makes it impossible to regain any capability. It must run before the user changes: the right to do this is lost
    afterwards.
    """
    for capability in range(_NUM_CAPABILITIES):
        # The call fails beyond the kernel's last capability, and without the right to drop one; with no_new_privs an
        # empty set stays empty in both cases.
        if _libc.prctl(_PR_CAPBSET_DROP, capability, 0, 0, 0) < 0:
            break


def drop_capabilities() -> None:
    """Gives up every capability."""
    _libc.prctl(_PR_CAP_AMBIENT, 4, 0, 0, 0)
    header, sets = (ctypes.c_uint32 * 2)(_CAPABILITY_VERSION_3, 0), (ctypes.c_uint32 * 6)()
    call("capset", ctypes.byref(header), ctypes.byref(sets))
