"""Limits on a process's access to the file system, the network and other processes where it may create no namespaces:
Landlock (Linux 5.13), as far as this kernel's version supports it.
"""

import ctypes
import os
import stat
import struct

from . import kernel

_EXECUTE, _WRITE_FILE, _READ_FILE, _READ_DIR = 1, 2, 4, 8
_TRUNCATE, _IOCTL_DEVICE = 1 << 14, 1 << 15
_FIRST_ABI = (1 << 13) - 1
# version -> rights that it added: moving between folders, truncating, controlling devices.
_SINCE = {2: 1 << 13, 3: _TRUNCATE, 5: _IOCTL_DEVICE}
_OF_FILES = _EXECUTE | _WRITE_FILE | _READ_FILE | _TRUNCATE | _IOCTL_DEVICE
_TCP = 0b11
_SCOPED = 0b11
"""Abstract unix sockets and signals only reach processes under the same restriction."""
_READ = _EXECUTE | _READ_FILE | _READ_DIR


def version() -> int:
    """Returns the version of Landlock of this kernel; 0 for none."""
    try:
        return kernel.syscall("landlock_create_ruleset", None, 0, 1)
    except kernel.Refused:
        return 0


def attributes(abi: int, network: bool) -> bytes:
    """Returns the rights that are forbidden wherever no rule allows them, as `struct landlock_ruleset_attr` of this
    version.

    Args:
        network: whether TCP is left alone.

    Example:
        >>> attributes(1, network=False).hex(), len(attributes(7, network=False))
        ('ff1f000000000000', 24)
    """
    fields = [_files(abi)]
    if abi >= 4:
        fields.append(0 if network else _TCP)
    if abi >= 6:
        fields.append(_SCOPED)
    return struct.pack(f"={len(fields)}Q", *fields)


def rule(abi: int, folder: int, writable: bool, is_folder: bool) -> bytes:
    """Returns the rights that are allowed at and below an open path, as `struct landlock_path_beneath_attr`.

    Args:
        folder: descriptor of the path.
        writable: whether all that this version knows is allowed there, or reading alone.
        is_folder: whether the path is a folder; files have fewer rights.

    Example:
        >>> rule(1, 5, writable=False, is_folder=True).hex()
        '0d0000000000000005000000'
    """
    allowed = _files(abi) if writable else _READ
    return struct.pack("=Qi", allowed & (-1 if is_folder else _OF_FILES), folder)


def _files(abi: int) -> int:
    return _FIRST_ABI | sum(right for since, right in _SINCE.items() if abi >= since)


def restrict(abi: int, readable: list[str], writable: list[str], network: bool) -> None:
    """Restricts this process and all processes that it will start. The restriction cannot be taken back, and needs
    no_new_privs.

    Args:
        readable: paths of folders and files; what does not exist is left out.
        writable: the same, for all that one can do there.
        network: whether TCP is left alone.

    Raises:
        kernel.Refused: this kernel has no Landlock, or a rule was refused.
    """
    packed = attributes(abi, network)
    rules = kernel.syscall("landlock_create_ruleset", ctypes.c_char_p(packed), len(packed), 0)
    for path in dict.fromkeys([*readable, *writable]):
        try:
            place = os.open(path, os.O_PATH | os.O_CLOEXEC)
        except OSError:
            continue
        allowed = rule(abi, place, path in writable, stat.S_ISDIR(os.fstat(place).st_mode))
        kernel.syscall("landlock_add_rule", rules, 1, ctypes.c_char_p(allowed), 0)
        os.close(place)
    kernel.syscall("landlock_restrict_self", rules, 0)
    os.close(rules)
