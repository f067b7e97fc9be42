"""Files and folders that are either wholly there or not there at all.

A write goes to a hidden neighbour, reaches the disk (`fsync`), and takes its name in one rename. A process killed at
any point therefore leaves the old content or the new one; what it leaves besides is a hidden `.NAME.partial-XXXXXXXX`,
which readers ignore and `torn` names.
"""

from __future__ import annotations

import errno
import os
import re
import secrets
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

_PARTIAL = ".partial-"
_LEFTOVER = re.compile(r"\..+" + re.escape(_PARTIAL) + "[0-9a-f]{8}", re.DOTALL)
_SPACE = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}


class StorageError(RuntimeError):
    """Something could not be written; the message says what, why and what is still safe.

    Example:
        >>> raise StorageError("a.json could not be written: no space is left for it.")
        Traceback (most recent call last):
        groupwise.checkpoint.atomic.StorageError: a.json could not be written: no space is left for it.
    """


def write_file(path: Path | str, data: bytes | str, *, durable: bool = True) -> None:
    """Replaces a file's content in one step.

    Args:
        path: the file.
        data: its new content. Half a surrogate pair, which UTF-8 cannot hold, is written as the escape that JSON has
            for it.
        durable: waits until it is on the disk. Without, a file survives the process but perhaps not a power cut, and
            hundreds of small ones take no time.

    Raises:
        StorageError: it could not be written; the old content stays.

    Example:
        >>> import tempfile
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     write_file(Path(folder) / "a.json", "{}")
        ...     (Path(folder) / "a.json").read_text()
        '{}'
    """
    path = Path(path)
    partial = _partial(path)
    try:
        with partial.open("wb") as file:
            file.write(data.encode(errors="backslashreplace") if isinstance(data, str) else data)
            file.flush()
            if durable:
                os.fsync(file.fileno())
        os.replace(partial, path)
        if durable:
            sync_folder(path.parent)
    except BaseException as error:
        partial.unlink(missing_ok=True)
        if isinstance(error, OSError):
            raise storage_error(path, error) from error
        raise


@contextmanager
def new_folder(path: Path | str, *, replace: bool = False) -> Iterator[Path]:
    """Yields an empty hidden folder which becomes `path` when the block ends well, and vanishes when it does not.

    Args:
        path: the folder to appear.
        replace: what to do when `path` exists by then: take its place, or (the default) leave the one that came first
            and drop ours, which is what two writers of the same content want.

    Yields:
        the hidden folder to fill.

    Raises:
        StorageError: the disk is full or the folder cannot be written.

    Example:
        >>> import tempfile
        >>> with tempfile.TemporaryDirectory() as root:
        ...     with new_folder(Path(root) / "model") as folder:
        ...         _ = (folder / "config.json").write_text("{}")
        ...         inside = (Path(root) / "model").exists()
        ...     inside, (Path(root) / "model").exists()
        (False, True)
    """
    path = Path(path)
    partial = _partial(path)
    try:
        partial.mkdir(parents=True)
        yield partial
        for folder, _, files in os.walk(partial):
            for name in files:
                _sync_file(Path(folder) / name)
            sync_folder(Path(folder))
        old = _set_aside(path) if replace and path.exists() else None
        try:
            os.rename(partial, path)
        except OSError as error:
            if error.errno not in (errno.EEXIST, errno.ENOTEMPTY) or replace:
                raise
            shutil.rmtree(partial, ignore_errors=True)
        sync_folder(path.parent)
        if old is not None:
            shutil.rmtree(old, ignore_errors=True)
    except BaseException as error:
        shutil.rmtree(partial, ignore_errors=True)
        if isinstance(error, OSError):
            raise storage_error(path, error) from error
        if _is_full_disk(error):  # libraries wrap the operating system's error in their own
            raise storage_error(path, OSError(errno.ENOSPC, str(error))) from error
        raise


def remove_folder(path: Path) -> None:
    """Deletes a folder so that a kill in the middle leaves only something hidden.

    Args:
        path: the folder.

    Example:
        >>> import tempfile
        >>> folder = Path(tempfile.mkdtemp())
        >>> remove_folder(folder)
        >>> folder.exists()
        False
    """
    shutil.rmtree(_set_aside(path), ignore_errors=True)


def torn(folder: Path) -> list[Path]:
    """Leftovers of writes that did not finish, oldest name first.

    Args:
        folder: where writes went.

    Example:
        >>> torn(Path("nowhere"))
        []
    """
    return sorted(entry for entry in folder.iterdir() if _LEFTOVER.fullmatch(entry.name)) if folder.is_dir() else []


def clear_torn(folder: Path) -> None:
    """Removes what writes that did not finish left in a folder and in every folder below it: one of them can be a whole
    copy of a model.

    Args:
        folder: whose writers have all ended.

    Example:
        >>> import tempfile
        >>> folder = Path(tempfile.mkdtemp())
        >>> (folder / "models" / ".step-3.partial-0123abcd").mkdir(parents=True)
        >>> clear_torn(folder)
        >>> [path.name for path in folder.rglob("*")]
        ['models']
    """
    for place, folders, _ in os.walk(folder):
        for leftover in torn(Path(place)):
            if leftover.is_dir() and not leftover.is_symlink():
                shutil.rmtree(leftover, ignore_errors=True)
                folders.remove(leftover.name)
            else:
                leftover.unlink(missing_ok=True)


def is_empty(folder: Path) -> bool:
    """Whether a folder holds nothing, or nothing but what writes that did not finish left.

    Args:
        folder: that exists.

    Example:
        >>> import tempfile
        >>> folder = Path(tempfile.mkdtemp())
        >>> (folder / ".config.json.partial-0123abcd").touch()
        >>> is_empty(folder)
        True
    """
    return all(_LEFTOVER.fullmatch(entry.name) for entry in folder.iterdir())


def check_writable(folder: Path) -> None:
    """Makes a hidden file in a folder and removes it; after a kill in between it counts as what a write left.

    Args:
        folder: that exists.

    Raises:
        OSError: no file can be made in it.
    """
    probe = _partial(folder / "writable")
    probe.touch()
    probe.unlink()


def sync_folder(folder: Path) -> None:
    """Makes the names in a folder durable; not every file system can, and then there is nothing to do.

    Args:
        folder: whose names.
    """
    try:
        handle = os.open(folder, os.O_RDONLY)
    except OSError:
        return
    try:
        os.fsync(handle)
    except OSError:
        pass
    finally:
        os.close(handle)


def storage_error(path: Path | str, error: OSError, kept: str = "") -> StorageError:
    """Turns the operating system's error into one that says what to do.

    Args:
        path: what was written.
        error: what the system said.
        kept: a sentence on what is safe.

    Returns:
        the error to raise.

    Example:
        >>> print(storage_error("runs/a/config.json", OSError(errno.EACCES, "denied"), "Nothing was lost."))
        runs/a/config.json could not be written: the folder is not writable. Nothing was lost.
    """
    path = Path(path)
    if error.errno in _SPACE:
        why = f"no space is left for it ({_free(path)}, or a limit on the size of files is reached)"
    elif error.errno in (errno.EACCES, errno.EPERM, errno.EROFS):
        why = "the folder is not writable"
    elif error.errno in (errno.ENOENT, errno.ENOTDIR):
        why = f"there is no folder {path.parent}"
    else:
        why = str(error)
    return StorageError(f"{path} could not be written: {why}.{' ' + kept if kept else ''}")


def _free(path: Path) -> str:
    folder = next((parent for parent in path.parents if parent.exists()), Path("/"))
    return f"{shutil.disk_usage(folder).free / 2**20:.1f} MiB free on its disk"


def _is_full_disk(error: BaseException) -> bool:
    text = str(error).lower()
    return isinstance(error, Exception) and (
        "no space left" in text or "file too large" in text or "os error 28" in text or "os error 27" in text
    )


def _partial(path: Path) -> Path:
    return path.with_name(f".{path.name}{_PARTIAL}{secrets.token_hex(4)}")


def _set_aside(path: Path) -> Path:
    hidden = _partial(path)
    os.rename(path, hidden)
    return hidden


def _sync_file(path: Path) -> None:
    with path.open("rb") as file:
        os.fsync(file.fileno())
