"""Files that a person named: read whole, and only regular files of a size that one machine reads at once."""

from __future__ import annotations

import errno
from pathlib import Path

MOST_BYTES = 2**33
"""The most bytes of a file of data."""

MOST_TABLE_BYTES = 2**28
"""The most bytes of a configuration, a summary or a table of numbers."""


def check_file(path: Path, most: int = MOST_BYTES) -> None:
    """Refuses a file that cannot be read to its end: a pipe or a device may never end, and a file with a hole may claim
    more bytes than there is memory.

    Args:
        most: the most bytes that are read.

    Raises:
        OSError: the file is absent, is no regular file, is larger, or cannot be read; `strerror` states the reason, and
            `filename` the path.

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
    """Returns the bytes of a file that `check_file` accepts.

    Args:
        most: the most bytes that are read.

    Raises:
        OSError: `check_file` refuses the file.
    """
    check_file(path, most)
    return path.read_bytes()
