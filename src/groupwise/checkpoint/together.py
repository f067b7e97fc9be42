"""Several processes that write one record into one folder: what fails on one of them fails on all, so that nobody
waits.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Protocol, TypeVar, final

from groupwise.checkpoint.atomic import StorageError, new_folder, storage_error
from groupwise.checkpoint.tree import save_tree, shards_of

T = TypeVar("T")

Checksums = dict[str, tuple[int, int]]
"""Size and CRC-32 of files in a folder, by name."""


class Peers(Protocol):
    """The processes of a run, as far as a checkpoint needs them."""

    @property
    def first(self) -> bool:
        """True on one process."""
        ...

    def gather(self, value: Any) -> list[Any]:
        """Returns one value a process, in the order of ranks, on all of them."""
        ...


@final
class Alone:
    """One process without peers.

    Example:
        >>> Alone().gather(3)
        [3]
    """

    first = True

    def gather(self, value: Any) -> list[Any]:
        """Returns the value."""
        return [value]


def write_record(
    path: Path, record: Any, peers: Peers, finish: Callable[[Path, Checksums], object] | None = None
) -> None:
    """Writes a nested record as the folder `path`, which appears whole or not at all and replaces one that exists.

    Args:
        path: path of the folder.
        record: nested tensors and plain values, of the same form on every process.
        peers: the processes, all of which call this function. The first one writes; where tensors are sharded each of
            them writes its shards.
        finish: gets the hidden folder and its files before it takes its name, on the first process.

    Raises:
        StorageError: a process could not write, or writes on a machine that does not share the folder.

    Example:
        >>> import tempfile
        >>> folder = Path(tempfile.mkdtemp()) / "start"
        >>> write_record(folder, {"step": 3}, Alone())
        >>> sorted(file.name for file in folder.iterdir())
        ['tensors.safetensors', 'values.json']
    """
    first = peers.first
    if not shards_of(record):
        if not first:
            return
        peers = Alone()
    with ExitStack() as stack:

        def begin() -> Path:
            path.parent.mkdir(parents=True, exist_ok=True)
            return stack.enter_context(new_folder(path, replace=True))

        partial = together(peers, path, lambda: begin() if first else path)[0]
        parts = together(peers, path, lambda: _checksums(partial, save_tree(partial, record, first=first)))
        if first:
            files = {name: file for part in parts for name, file in part.items()}
            _check_visible(partial, path, files)
            if finish is not None:
                finish(partial, files)


def checksum(path: Path) -> int:
    """Returns the CRC-32 of a file, of which a part at a time is read."""
    value = 0
    with path.open("rb") as file:
        while block := file.read(2**24):
            value = zlib.crc32(block, value)
    return value


def together(peers: Peers, path: Path, write: Callable[[], T]) -> list[T]:
    """Calls `write` on every process and returns what each of them returned.

    Args:
        peers: the processes; every one must call this function.
        path: what is written, for the message.
        write: writes this process's part.

    Raises:
        StorageError: a process could not write its part; the message is the same on all of them.

    Example:
        >>> together(Alone(), Path("a"), lambda: 3)
        [3]
    """
    written, failure, cause = None, "", None
    try:
        written = write()
    except (StorageError, OSError) as error:
        failure, cause = str(error if isinstance(error, StorageError) else storage_error(path, error)), error
    outcomes = peers.gather((written, failure))
    for _, message in outcomes:
        if message:
            raise StorageError(message) from cause
    return [part for part, _ in outcomes]


def _checksums(folder: Path, names: list[str]) -> Checksums:
    return {name: ((folder / name).stat().st_size, checksum(folder / name)) for name in names}


def _check_visible(partial: Path, path: Path, files: Checksums) -> None:
    absent = [name for name in files if not (partial / name).is_file()]
    if absent:
        raise StorageError(
            f"{path} could not be written: another process wrote {absent[0]} of it on another machine; give a run"
            " folder (--out) that all machines share"
        )
