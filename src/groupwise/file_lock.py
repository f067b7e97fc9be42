"""A lock on an open file, which the system releases when the process ends, even when it is killed."""


def take(descriptor: int, *, shared: bool = False) -> bool:
    """Locks an open file without waiting.

    Args:
        descriptor: number of the open file. For an exclusive lock the file has to be open for writing, since the file
            systems of clusters refuse to lock any other.
        shared: lets other processes hold a shared lock on the file as well.

    Returns:
        False where another process holds the lock; True where the file is locked now, and where locks do not exist: on
        some file systems, and on Windows.

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
