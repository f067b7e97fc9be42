"""A filter of system calls: it refuses the calls that no program of a policy needs, and those that neither namespaces
nor Landlock restrict.
"""

from __future__ import annotations

import ctypes
import errno
import os
import struct

from . import kernel

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping

    _Numbers = tuple[int | None, int | None]

_LOAD, _EQUAL, _ANY_BIT, _MASK, _GIVE = 0x20, 0x15, 0x45, 0x54, 0x06
_ALLOW, _ERROR = 0x7FFF0000, 0x00050000
_NUMBER, _MACHINE = 0, 4
_MACHINES = {"x86_64": 0xC000003E, "aarch64": 0xC00000B7}
_SET_FILTER = 1
_ANOTHER_ABI = 0x40000000
_AF_UNIX, _AF_INET, _AF_INET6, _AF_NETLINK = 1, 2, 10, 16

# name -> number on x86_64, on aarch64; None where it does not exist. Calls that need a capability are not among them,
# because no program has one.
_NEVER = {
    # Calls that reach into other processes.
    **{"ptrace": (101, 117), "process_vm_readv": (310, 270), "process_vm_writev": (311, 271)},
    **{"kcmp": (312, 272), "pidfd_getfd": (438, 438)},
    # Calls around the filter, and calls that make new namespaces, in which a program has every capability.
    **{"io_uring_setup": (425, 425), "userfaultfd": (323, 282), "unshare": (272, 97), "setns": (308, 268)},
    # Calls for keys, which no namespace separates, and for the machine itself.
    **{"add_key": (248, 217), "request_key": (249, 218), "keyctl": (250, 219)},
    **{"bpf": (321, 280), "perf_event_open": (298, 241), "syslog": (103, 116)},
}
# Calls that create memory which outlives a process or which no limit of a process counts. A caller of the newest call
# falls back to an older one when it gets ENOSYS.
_NOT_THERE = {
    **{"shmget": (29, 194), "shmat": (30, 196), "shmctl": (31, 195)},
    **{"semget": (64, 190), "msgget": (68, 186), "mq_open": (240, 180)},
    **{"memfd_create": (319, 279), "memfd_secret": (447, 447), "clone3": (435, 435), "openat2": (437, 437)},
}
# Landlock does not restrict these calls, and without a file system of its own a program could change the user's other
# files and processes with them.
_WITHOUT_EFFECT = {
    **{"chmod": (90, None), "fchmod": (91, 52), "fchmodat": (268, 53), "fchmodat2": (452, 452)},
    **{"chown": (92, None), "fchown": (93, 55), "lchown": (94, None), "fchownat": (260, 54)},
    **{"utime": (132, None), "utimes": (235, None), "futimesat": (261, None), "utimensat": (280, 88)},
    # All processes of the program stay in one process group, which one signal ends: a flood would otherwise start
    # processes faster than they can be found.
    **{"setsid": (112, 157), "setpgid": (109, 154)},
}
_OF_OTHERS = {
    **{"setxattr": (188, 5), "lsetxattr": (189, 6), "fsetxattr": (190, 7), "truncate": (76, 45)},
    **{"removexattr": (197, 14), "lremovexattr": (198, 15)},
    **{"sched_setaffinity": (203, 122), "sched_setparam": (142, 118), "sched_setscheduler": (144, 119)},
    **{"sched_setattr": (314, 274), "setpriority": (141, 140), "ioprio_set": (251, 30)},
    # Calls that change the user for whom the program's processes count, where that user differs from the owner of the
    # readable files.
    **{"setuid": (105, 146), "setreuid": (113, 145), "setresuid": (117, 147), "setfsuid": (122, 151)},
}
_SIGNALS = {
    **{"kill": (62, 129), "tkill": (200, 130), "tgkill": (234, 131), "pidfd_send_signal": (424, 424)},
    **{"rt_sigqueueinfo": (129, 138), "rt_tgsigqueueinfo": (297, 240)},
}
_SOCKET, _CLONE, _PRLIMIT, _OPEN, _OPENAT = (41, 198), (56, 220), (302, 261), (2, None), (257, 56)
# Commands that name who is sent the signals of a file or a socket.
_OWNERS = {(72, 25): (8, 10, 15), (16, 29): (0x8901, 0x8902)}


def supported() -> bool:
    """Returns True where the numbers of this machine's system calls are known."""
    return os.uname().machine in _MACHINES


def _word(argument: int) -> int:
    return 16 + 8 * argument


def _step(code: int, value: int, yes: int = 0, no: int = 0) -> bytes:
    return struct.pack("=HBBI", code, yes, no, value & 0xFFFFFFFF)


def filter_program(namespaces: bool, network: bool, signals: bool) -> bytes:
    """Returns the filter, as the kernel's `struct sock_filter` one after another.

    Args:
        namespaces: whether the process has its own, which hold part of this already.
        network: whether it may have sockets to others.
        signals: whether Landlock or a namespace keeps its signals to itself; otherwise it may send none.

    Example:
        >>> len(filter_program(namespaces=True, network=False, signals=True)) % 8
        0
    """
    machine = os.uname().machine
    place = kernel.MACHINES.index(machine)
    steps = [
        _step(_LOAD, _MACHINE),
        _step(_EQUAL, _MACHINES[machine], yes=1),
        _refusal(errno.EPERM),
        _step(_LOAD, _NUMBER),
    ]
    if machine == "x86_64":
        steps += [_step(0x35, _ANOTHER_ABI, no=1), _refusal(errno.ENOSYS)]

    def always(names: Mapping[str, _Numbers], number: int) -> None:
        for numbers in names.values():
            if (called := numbers[place]) is not None:
                steps.extend([_step(_EQUAL, called, no=1), _refusal(number)])

    def where(numbers: _Numbers, tests: list[bytes], number: int = errno.EPERM) -> None:
        """Adds a call with tests, which end at the refusal or jump over it."""
        if (called := numbers[place]) is not None:
            steps.extend([_step(_EQUAL, called, no=len(tests) + 2), *tests, _refusal(number), _step(_LOAD, _NUMBER)])

    always(_NEVER, errno.EPERM)
    always(_NOT_THERE, errno.ENOSYS)
    # The mask holds all flags of new namespaces, those of time and of control groups included.
    where(_CLONE, [_step(_LOAD, _word(0)), _step(_ANY_BIT, 0x7E020080, no=1)])
    families = [_AF_INET, _AF_INET6] if network else []
    families += ([_AF_UNIX] if namespaces else []) + ([_AF_NETLINK] if network else [])
    where(
        _SOCKET,
        [
            _step(_LOAD, _word(0)),
            *(_step(_EQUAL, family, yes=len(families) - at) for at, family in enumerate(families)),
        ],
        errno.EACCES,
    )
    if not namespaces:
        always(_WITHOUT_EFFECT, 0)
        always(_OF_OTHERS, errno.EPERM)
        # Process 0 is the program itself.
        where(_PRLIMIT, [_step(_LOAD, _word(0)), _step(_EQUAL, 0, yes=1)])
        for numbers, commands in _OWNERS.items():
            for command in commands:
                where(numbers, [_step(_LOAD, _word(1)), _step(_EQUAL, command, no=1)])
        # The test refuses opening to read with truncation: early versions of Landlock do not restrict truncation.
        for numbers, argument in ((_OPEN, 1), (_OPENAT, 2)):
            reading = [
                _step(_LOAD, _word(argument)),
                _step(_MASK, os.O_ACCMODE | os.O_TRUNC),
                _step(_EQUAL, os.O_TRUNC, no=1),
            ]
            where(numbers, reading)
        if not signals:
            always(_SIGNALS, errno.EPERM)
    return b"".join([*steps, _step(_GIVE, _ALLOW)])


def _refusal(number: int) -> bytes:
    return _step(_GIVE, _ERROR | number)


def install(program: bytes) -> None:
    """Installs a filter on this process and all processes that it will start. The filter cannot be taken back, and
    needs no_new_privs.

    Raises:
        kernel.Refused: the kernel takes no filter.
    """
    steps = ctypes.create_string_buffer(program, len(program))
    described = struct.pack("HxxxxxxP", len(program) // 8, ctypes.addressof(steps))
    kernel.syscall("seccomp", _SET_FILTER, 0, ctypes.c_char_p(described))
