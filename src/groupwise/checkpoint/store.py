"""The checkpoints of one run: written completely or not at all, pruned by a rule, and readable after any crash."""

import json
import re
import shutil
import zlib
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol, TypeVar

from groupwise.checkpoint.atomic import StorageError, new_folder, remove_folder, storage_error, unfinished_writes
from groupwise.checkpoint.config import CheckpointConfig
from groupwise.checkpoint.tree import FILES, SHARDS, load_tree, save_tree, shards_of
from groupwise.config import Config, ConfigError
from groupwise.runs.folder import natural

# Several processes write one record into one folder. A failure on one of them fails on all, so that no process waits.

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

        partial = on_every_process(peers, path, lambda: begin() if first else path)[0]
        parts = on_every_process(peers, path, lambda: _checksums(partial, save_tree(partial, record, first=first)))
        if first:
            files = {name: file for part in parts for name, file in part.items()}
            _check_visible(partial, path, files)
            if finish is not None:
                finish(partial, files)


def checksum(path: Path) -> int:
    """Returns the CRC-32 of a file, which is read piece by piece."""
    value = 0
    with path.open("rb") as file:
        while block := file.read(2**24):
            value = zlib.crc32(block, value)
    return value


def on_every_process(peers: Peers, path: Path, write: Callable[[], T]) -> list[T]:
    """Calls `write` on every process and returns what each of them returned.

    Args:
        peers: the processes; every one must call this function.
        path: what is written, for the message.
        write: writes this process's part.

    Raises:
        StorageError: a process could not write its part; the message is the same on all of them.

    Example:
        >>> on_every_process(Alone(), Path("a"), lambda: 3)
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


_MANIFEST = "manifest.json"
_MANIFEST_BYTES = 2**20
"""An upper bound on the size of a manifest; a longer file is not read."""

_SHARD = re.compile(re.escape(SHARDS) + r"/[^/]+\.safetensors")


@dataclass(frozen=True)
class Checkpoint:
    """One complete checkpoint of a run.

    Args:
        path: folder of the checkpoint.
        step: step of the run after which it was saved.
        score: score of the evaluation at this step; `None` without one.
        best: whether that score was the best so far.
    """

    path: Path
    step: int
    score: float | None
    best: bool

    def load(self) -> Any:
        """Reads the saved record, with tensors on the CPU; those that were sharded are `StoredTensor`.

        Raises:
            ConfigError: the files match their manifest but hold no record, since something else wrote them.
        """
        try:
            return load_tree(self.path)
        except Exception as error:  # the readers raise many kinds of exceptions on a foreign file
            advice = "remove that folder, and `groupwise resume` goes on from the checkpoint before it"
            raise ConfigError(
                f"{self.path} holds no record that can be read ({type(error).__name__}: {error}); {advice}"
            ) from error


class CheckpointStore:
    """Saves, lists and prunes the checkpoints of a folder.

    Args:
        folder: the folder `RUN/checkpoints`, created with the first save.
        config: the rule for removing checkpoints.

    Example:
        >>> import tempfile
        >>> store = CheckpointStore(Path(tempfile.mkdtemp()), CheckpointConfig(keep_last=2))
        >>> for step in (1, 2, 3):
        ...     _ = store.save(step, {"step": step})
        >>> [checkpoint.step for checkpoint in store.complete()], store.latest().load()
        ([2, 3], {'step': 3})
    """

    def __init__(self, folder: Path, config: CheckpointConfig) -> None:
        self.folder = folder
        self.config = config

    def save(
        self, step: int, record: Any, *, score: float | None = None, best: bool = False, peers: Peers | None = None
    ) -> Path:
        """Writes the checkpoint `step-N`, then removes those that the rule no longer keeps.

        Args:
            step: the number of steps that the run has taken.
            record: nested tensors and plain values.
            score: score of the evaluation at this step, where this is the best one.
            best: whether that score is the best so far.
            peers: the processes of the run, all of which call this method. The first one writes, and where tensors are
                sharded each of them its shards, into a folder that all of them see.

        Returns:
            the checkpoint's folder.

        Raises:
            StorageError: the checkpoint could not be written; the message names the newest one that is still safe.
        """
        path, peers = self.folder / f"step-{step}", peers or Alone()

        def finish(partial: Path, files: Checksums) -> None:
            (partial / _MANIFEST).write_text(json.dumps({"step": step, "score": score, "best": best, "files": files}))

        try:
            write_record(path, record, peers, finish)
        except (StorageError, OSError) as error:
            raise StorageError(f"{error} {self.safety_note()}") from error
        if peers.first:
            self.prune()
        return path

    def complete(self) -> list[Checkpoint]:
        """Returns every complete checkpoint, in the order of steps."""
        return [checkpoint for path in self._steps() if (checkpoint := _read(path)) is not None]

    def latest(self) -> Checkpoint | None:
        """Returns the newest complete checkpoint, or `None`."""
        return next((checkpoint for path in reversed(self._steps()) if (checkpoint := _read(path)) is not None), None)

    def written(self) -> list[Checkpoint]:
        """Returns every checkpoint whose files have the sizes of its manifest, in the order of steps. Their contents,
        which may be hundreds of gigabytes, are not read.
        """
        return [checkpoint for path in self._steps() if (checkpoint := _read(path, reads_contents=False)) is not None]

    def damaged(self) -> list[Path]:
        """Lists what a crash left: unfinished writes, and folders whose files do not match their manifest."""
        return unfinished_writes(self.folder) + [path for path in self._steps() if _read(path) is None]

    def clear_damaged(self, damaged: list[Path] | None = None) -> list[Path]:
        """Removes the paths that `damaged` lists, and returns them.

        Args:
            damaged: what `damaged` has returned before; where omitted, it is called.
        """
        damaged_paths = self.damaged() if damaged is None else damaged
        for path in damaged_paths:
            if path.is_dir() and not path.is_symlink():
                shutil.rmtree(path, ignore_errors=True)
            else:
                path.unlink(missing_ok=True)
        return damaged_paths

    def prune(self) -> None:
        """Keeps the newest `keep_last`, the best one, and every `keep_every`-th step."""
        checkpoints = self.written()
        steps_to_keep = {checkpoint.step for checkpoint in checkpoints[-self.config.keep_last :]}
        if self.config.keep_best:
            steps_to_keep |= {
                checkpoint.step
                for checkpoint in checkpoints
                if checkpoint.best and not any(later.best for later in checkpoints if later.step > checkpoint.step)
            }
        if self.config.keep_every is not None:
            steps_to_keep |= {
                checkpoint.step for checkpoint in checkpoints if checkpoint.step % self.config.keep_every == 0
            }
        for checkpoint in checkpoints:
            if checkpoint.step not in steps_to_keep:
                remove_folder(checkpoint.path)

    def safety_note(self) -> str:
        """Returns one sentence on the checkpoint that is safe after a failed write, and on how to go on from it."""
        latest = self.latest()
        if latest is None:
            return "No earlier checkpoint of this run exists; start it again when that is mended."
        return (
            f"Kept: {latest.path} is complete; nothing before step {latest.step} is lost. When that is mended,"
            f" `groupwise resume {self.folder.parent}` goes on."
        )

    def _steps(self) -> list[Path]:
        """Returns the paths whose name is that of a checkpoint, the lowest step first."""
        return sorted(
            (path for path in self.folder.glob("step-*") if path.name.removeprefix("step-").isdecimal()), key=natural
        )


class _Manifest(Config):
    """The manifest of a checkpoint: its step and score, and the size and checksum of every file."""

    step: int
    score: float | None
    best: bool
    files: dict[str, tuple[int, int]]


def _read(path: Path, *, reads_contents: bool = True) -> Checkpoint | None:
    """Reads the checkpoint in a folder; returns `None` where a file is missing or differs from the manifest, or where
    the manifest cannot be read.

    Args:
        reads_contents: whether contents are compared in addition to sizes.
    """
    try:
        file = path / _MANIFEST
        # A pipe of that name would never end, and a manifest is never longer than this bound.
        if not file.is_file() or file.stat().st_size > _MANIFEST_BYTES:
            return None
        manifest = _Manifest.model_validate_json(file.read_bytes())
        shards = {name for name in manifest.files if _SHARD.fullmatch(name)}
        if set(manifest.files) - shards != FILES or path.name != f"step-{manifest.step}":
            return None
        for name, (size, recorded_checksum) in manifest.files.items():
            file = path / name
            if not file.is_file() or file.stat().st_size != size:
                return None
            if reads_contents and checksum(file) != recorded_checksum:
                return None
        return Checkpoint(path, manifest.step, manifest.score, manifest.best)
    except (OSError, ValueError):
        return None
