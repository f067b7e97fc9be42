"""The system calls that Python has no function for. Each raises `Refused`, naming the call and the kernel's error."""

import ctypes
import errno
import os

_libc = ctypes.CDLL(None, use_errno=True)
_libc.syscall.restype = ctypes.c_long

MACHINES = ("x86_64", "aarch64")
_CALLS = {
    "capset": (126, 91),
    "landlock_create_ruleset": (444, 444),
    "landlock_add_rule": (445, 445),
    "landlock_restrict_self": (446, 446),
    "seccomp": (317, 277),
}


class Refused(Exception):
    """A system call that the kernel or its administrator does not allow: the wall cannot be built in this way."""


def _done(name: str, result: int) -> int:
    if result < 0:
        raise Refused(f"{name}: {os.strerror(ctypes.get_errno())}")
    return result


def syscall(name: str, *arguments: object) -> int:
    """Does a system call by its number on this machine.

    Args:
        arguments: integers, bytes, pointers or None.

    Raises:
        Refused: the kernel refused it.
    """
    machine = os.uname().machine
    if machine not in MACHINES:
        raise Refused(f"{name} on a machine of kind {machine}: {os.strerror(errno.ENOSYS)}")
    converted = [ctypes.c_long(argument) if isinstance(argument, int) else argument for argument in arguments]
    return _done(name, _libc.syscall(ctypes.c_long(_CALLS[name][MACHINES.index(machine)]), *converted))


def prctl(option: int, value: int) -> None:
    """Does prctl(2) with one argument."""
    _done(f"prctl {option}", _libc.prctl(option, value, 0, 0, 0))
