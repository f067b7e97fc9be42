"""A lock on an open file, which the system lets go when the process ends, however it ends."""

from __future__ import annotations


def take(descriptor: int, *, shared: bool = False) -> bool:
    """Lock an open file without waiting.

    Args:
        descriptor: of the file, open for writing where the lock is not shared: file systems of clusters lock no other.
        shared: whether others may hold it in the same way.

    Returns:
        False where another process holds it; True where it is locked, and where nothing can be known: on a file system
        without locks, and on Windows.

    Example:
        >>> import tempfile
        >>> with tempfile.TemporaryFile() as file:
        ...     take(file.fileno())
        True
    """
    try:
        import fcntl
    except ImportError:
        return True
    try:
        fcntl.flock(descriptor, (fcntl.LOCK_SH if shared else fcntl.LOCK_EX) | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError:
        return True
    return True
