"""Atomic writes of files and folders: a reader sees the old content or the new one, never a part of it.

A write goes to a hidden neighbour, reaches the disk (`fsync`), and takes its name in one rename. A process killed at
any point therefore leaves the old content or the new one, and perhaps a hidden `.NAME.partial-XXXXXXXX`, which readers
ignore and `unfinished_writes` lists.
"""

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
    """The error of a failed write; its message names the file, the cause and the data that is still safe.

    Example:
        >>> raise StorageError("a.json could not be written: no space is left for it.")
        Traceback (most recent call last):
        groupwise.checkpoint.atomic.StorageError: a.json could not be written: no space is left for it.
    """


def write_file(path: Path | str, data: bytes | str, *, durable: bool = True, replace: bool = True) -> None:
    """Replaces a file's content in one step.

    Args:
        data: the file's new content. A lone surrogate, which UTF-8 cannot encode, is written as its JSON escape.
        durable: waits until the content is on the disk. Without waiting, a file survives the end of the process but
            perhaps no power cut, and writing hundreds of small files takes no time.
        replace: whether the file may exist. Of several processes that write a new one, only one succeeds, where the
            file system has hard links.

    Raises:
        FileExistsError: the file exists and is not to be replaced.
        StorageError: the file could not be written; its old content stays.

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
        if replace or not _linked(partial, path):
            os.replace(partial, path)
        if durable:
            sync_folder(path.parent)
    except BaseException as error:
        partial.unlink(missing_ok=True)
        if isinstance(error, OSError) and not isinstance(error, FileExistsError):
            raise storage_error(path, error) from error
        raise


@contextmanager
def new_folder(path: Path | str, *, replace: bool = False) -> Iterator[Path]:
    """Yields an empty hidden folder which becomes `path` when the block ends well, and vanishes when it does not.

    Args:
        path: path that the folder has after the block.
        replace: whether the folder takes the place of one that exists at `path` by then. By default the existing one
            stays and the new one is dropped, which suits two writers of the same content.

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
        replaced_folder = _set_aside(path) if replace and path.exists() else None
        try:
            os.rename(partial, path)
        except OSError as error:
            if error.errno not in (errno.EEXIST, errno.ENOTEMPTY) or replace:
                raise
            shutil.rmtree(partial, ignore_errors=True)
        sync_folder(path.parent)
        if replaced_folder is not None:
            shutil.rmtree(replaced_folder, ignore_errors=True)
    except BaseException as error:
        shutil.rmtree(partial, ignore_errors=True)
        if isinstance(error, OSError):
            raise storage_error(path, error) from error
        if (number := _wrapped_number(error)) is not None:
            raise storage_error(path, OSError(number, str(error))) from error
        raise


def remove_folder(path: Path) -> None:
    """Deletes a folder; a process killed on the way leaves a hidden remainder, never a damaged folder of that name.

    Example:
        >>> import tempfile
        >>> folder = Path(tempfile.mkdtemp())
        >>> remove_folder(folder)
        >>> folder.exists()
        False
    """
    shutil.rmtree(_set_aside(path), ignore_errors=True)


def unfinished_writes(folder: Path) -> list[Path]:
    """Returns the hidden files and folders that unfinished writes left in a folder, sorted by name.

    Example:
        >>> unfinished_writes(Path("nowhere"))
        []
    """
    return sorted(entry for entry in folder.iterdir() if _LEFTOVER.fullmatch(entry.name)) if folder.is_dir() else []


def clear_unfinished_writes(folder: Path) -> None:
    """Removes what unfinished writes left in a folder and in all its subfolders, which can be a whole copy of a model.

    Args:
        folder: a folder into which no process is writing any more.

    Example:
        >>> import tempfile
        >>> folder = Path(tempfile.mkdtemp())
        >>> (folder / "models" / ".step-3.partial-0123abcd").mkdir(parents=True)
        >>> clear_unfinished_writes(folder)
        >>> [path.name for path in folder.rglob("*")]
        ['models']
    """
    for subfolder, folders, _ in os.walk(folder):
        for leftover in unfinished_writes(Path(subfolder)):
            if leftover.is_dir() and not leftover.is_symlink():
                shutil.rmtree(leftover, ignore_errors=True)
                folders.remove(leftover.name)
            else:
                leftover.unlink(missing_ok=True)


def is_empty(folder: Path) -> bool:
    """Returns whether a folder is empty, apart from the remainders of unfinished writes.

    Args:
        folder: path of an existing folder.

    Example:
        >>> import tempfile
        >>> folder = Path(tempfile.mkdtemp())
        >>> (folder / ".config.json.partial-0123abcd").touch()
        >>> is_empty(folder)
        True
    """
    return all(_LEFTOVER.fullmatch(entry.name) for entry in folder.iterdir())


def check_writable(folder: Path) -> None:
    """Creates a hidden file in an existing folder and removes it again.

    A process killed in between leaves a file that counts as an unfinished write.

    Raises:
        OSError: no file can be created in the folder.
    """
    probe = _partial(folder / "writable")
    probe.touch()
    probe.unlink()


def sync_folder(folder: Path) -> None:
    """Makes the names in a folder durable, on file systems that support it."""
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


def storage_error(path: Path | str, error: OSError, safety_note: str = "") -> StorageError:
    """Returns the error of a failed write, with the cause and the remedy in words.

    Args:
        path: file or folder that could not be written.
        error: error of the operating system.
        safety_note: a sentence on the data that is still safe.

    Returns:
        the error to raise.

    Example:
        >>> print(storage_error("runs/a/config.json", OSError(errno.EACCES, "denied"), "Nothing was lost."))
        runs/a/config.json could not be written: the folder is not writable. Nothing was lost.
    """
    path = Path(path)
    if error.errno in _SPACE:
        reason = (
            "a limit on the size of files is reached (ulimit -f)"
            if error.errno == errno.EFBIG
            else f"no space is left for it ({_free(path)}); free some"
        )
    elif error.errno in (errno.EACCES, errno.EPERM, errno.EROFS):
        reason = "the disk is mounted read-only" if error.errno == errno.EROFS else "the folder is not writable"
    elif error.errno in (errno.ENOENT, errno.ENOTDIR):
        reason = f"there is no folder {path.parent}"
    else:
        reason = str(error)
    return StorageError(f"{path} could not be written: {reason}.{' ' + safety_note if safety_note else ''}")


def _free(path: Path) -> str:
    folder = next((parent for parent in path.parents if parent.exists()), Path("/"))
    return f"{shutil.disk_usage(folder).free / 2**20:.1f} MiB free on its disk"


def _wrapped_number(error: BaseException) -> int | None:
    """Returns the operating system's number of a failed write that a library raised as an error of its own."""
    text = str(error).lower() if isinstance(error, Exception) else ""
    numbers = {errno.ENOSPC: ("no space left", "os error 28"), errno.EFBIG: ("file too large", "os error 27")}
    return next((number for number, words in numbers.items() if any(word in text for word in words)), None)


def _linked(partial: Path, path: Path) -> bool:
    """Gives a file its name if no other file has it; returns False on a file system without hard links."""
    try:
        os.link(partial, path)
    except FileExistsError:
        raise
    except OSError:
        return False
    partial.unlink()
    return True


def _partial(path: Path) -> Path:
    return path.with_name(f".{path.name}{_PARTIAL}{secrets.token_hex(4)}")


def _set_aside(path: Path) -> Path:
    hidden = _partial(path)
    os.rename(path, hidden)
    return hidden


def _sync_file(path: Path) -> None:
    with path.open("rb") as file:
        os.fsync(file.fileno())
