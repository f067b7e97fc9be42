"""The folder of a program that has no file system of its own: the size of its contents, and its removal. Neither
function follows links or recurses.
"""

from __future__ import annotations

import os
import stat
import time

MAX_FILES, MAX_DEPTH, MAX_FOLDERS = 16384, 64, 256
_BLOCK = 512
_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK


def used_mb(folder: int) -> float:
    """Returns the megabytes of all files in an open folder; infinite for a folder with too many files or folders nested
    too deep.

    Args:
        folder: descriptor of the open folder.

    Example:
        >>> used_mb(os.open("/proc/self/fdinfo", os.O_RDONLY))
        0.0
    """
    size, number, level = 0, 0, [os.dup(folder)]
    try:
        for _ in range(MAX_DEPTH):
            below: list[int] = []
            while level:
                place = level.pop()
                try:
                    folder_bytes, folder_entries = _count(place, below)
                finally:
                    os.close(place)
                size, number = size + folder_bytes, number + folder_entries
            level = below
            if not level or number > MAX_FILES or len(level) > MAX_FOLDERS:
                break
        return float("inf") if level or number > MAX_FILES else size / 2**20
    finally:
        for place in level:
            os.close(place)


def _count(folder: int, below: list[int]) -> tuple[int, int]:
    """Returns the bytes and the number of entries of one folder, and opens its subfolders, up to the limit."""
    size = number = 0
    try:
        with os.scandir(folder) as entries:
            for entry in entries:
                number += 1
                if number > MAX_FILES:
                    break
                try:
                    status = entry.stat(follow_symlinks=False)
                    size += status.st_blocks * _BLOCK
                    if stat.S_ISDIR(status.st_mode) and len(below) <= MAX_FOLDERS:
                        below.append(os.open(entry.name, _FOLDER, dir_fd=folder))
                except OSError:
                    # The entry was removed in between, or the program has closed the folder to itself and cannot write
                    # there.
                    continue
    except OSError:
        pass
    return size, number


def remove(path: str, seconds: float = 60.0) -> bool:
    """Removes a folder and its contents. Deep contents are moved up first, so that neither a long path nor many open
    folders are needed.

    Args:
        seconds: how long this may take.

    Returns:
        Whether it is gone.

    Example:
        >>> import tempfile
        >>> folder = tempfile.mkdtemp()
        >>> os.makedirs(folder + "/a/b")
        >>> os.symlink("/", folder + "/a/link")
        >>> remove(folder), os.path.exists(folder)
        (True, False)
    """
    until = time.monotonic() + seconds
    try:
        top = os.open(path, _FOLDER)
    except FileNotFoundError:
        return True
    except OSError:
        return False
    number, name_of_moved = 0, os.urandom(8).hex()
    try:
        os.fchmod(top, 0o700)
        while names := os.listdir(top):
            for name in names:
                if time.monotonic() > until:
                    return False
                number += 1 + _one(top, name, f"{name_of_moved}-{number}")
        os.rmdir(path)
    except OSError:
        return False
    finally:
        os.close(top)
    return True


def _one(top: int, name: str, new: str) -> int:
    """Removes a file, or a folder after moving its contents up. Returns the number of moved folders."""
    try:
        os.unlink(name, dir_fd=top)
        return 0
    except (IsADirectoryError, PermissionError):
        pass
    os.chmod(name, 0o700, dir_fd=top)
    place = os.open(name, _FOLDER, dir_fd=top)
    moved = 0
    try:
        for inner in os.listdir(place):
            try:
                os.unlink(inner, dir_fd=place)
            except (IsADirectoryError, PermissionError):
                os.chmod(inner, 0o700, dir_fd=place)
                moved += 1
                os.rename(inner, f"{new}-{moved}", src_dir_fd=place, dst_dir_fd=top)
    finally:
        os.close(place)
    os.rmdir(name, dir_fd=top)
    return moved
