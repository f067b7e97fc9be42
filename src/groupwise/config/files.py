"""Files that a person named: read whole, and only where they are files of a size that one machine reads at once."""

from __future__ import annotations

import errno
from pathlib import Path

MOST_BYTES = 2**33
"""Of a file of data."""

MOST_TABLE_BYTES = 2**28
"""Of a configuration, a summary, a table of numbers."""


def check_file(path: Path, most: int = MOST_BYTES) -> None:
    """Refuses what cannot be read to its end. A pipe or a device of that name may never end, and a file with a hole may
    claim more than there is memory.

    Args:
        path: the file.
        most: bytes.

    Raises:
        OSError: it is absent, is no file, is larger, or cannot be read; `strerror` says which, and `filename` names it.

    Example:
        >>> check_file(Path("/dev/zero"))
        Traceback (most recent call last):
        OSError: [Errno 22] is no file: '/dev/zero'
    """
    size = path.stat().st_size
    if not path.is_file():
        raise OSError(errno.EINVAL, "is no file", str(path))
    if size > most:
        raise OSError(
            errno.EFBIG, f"has {size / 2**20:.0f} MiB, more than the {most / 2**20:.0f} MiB that are read", str(path)
        )


def read_whole(path: Path, most: int = MOST_BYTES) -> bytes:
    """The bytes of a file that `check_file` lets pass.

    Args:
        path: the file.
        most: bytes.

    Raises:
        OSError: as `check_file`.
    """
    check_file(path, most)
    return path.read_bytes()
