"""The checkpoints of one run: written whole or not at all, kept by rule, found again after any crash."""

from __future__ import annotations

import json
import shutil
import zlib
from dataclasses import dataclass
from pathlib import Path
from typing import Any, final

from groupwise.checkpoint.atomic import StorageError, new_folder, remove_folder, torn
from groupwise.checkpoint.config import CheckpointConfig
from groupwise.checkpoint.tree import FILES, load_tree, save_tree
from groupwise.config import Config, ConfigError
from groupwise.runs.natural_order import natural

_MANIFEST = "manifest.json"
_MANIFEST_BYTES = 2**16
"""More than the manifest of any checkpoint has."""


@dataclass(frozen=True)
class Checkpoint:
    """One complete checkpoint: the step it belongs to, the score then (or `None`), and whether it was the best so far.

    Args:
        path: its folder.
        step: of the run.
        score: the score then.
        best: whether it was the best so far.
    """

    path: Path
    step: int
    score: float | None
    best: bool

    def load(self) -> Any:
        """The saved record, tensors on the CPU.

        Raises:
            ConfigError: its files are those of its manifest, and hold no record: somebody made both.
        """
        try:
            return load_tree(self.path)
        except Exception as error:  # whatever the readers of a stranger's file say
            advice = "remove that folder, and `groupwise resume` goes on from the checkpoint before it"
            raise ConfigError(
                f"{self.path} holds no record that can be read ({type(error).__name__}: {error}); {advice}"
            ) from error


class CheckpointStore:
    """Saves, lists and prunes the checkpoints of a folder.

    Args:
        folder: `RUN/checkpoints`.
        config: how many to keep.

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

    def save(self, step: int, record: Any, *, score: float | None = None, best: bool = False) -> Path:
        """Writes `step-N`, then removes what the rule no longer keeps.

        Args:
            step: of the run.
            record: nested tensors and plain values.
            score: the score, where this is the best.
            best: whether it is the best so far.

        Returns:
            the checkpoint's folder.

        Raises:
            StorageError: it could not be written; the message names the newest checkpoint that is still safe.
        """
        path = self.folder / f"step-{step}"
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            with new_folder(path, replace=True) as partial:
                save_tree(partial, record)
                files = {
                    file.name: [file.stat().st_size, zlib.crc32(file.read_bytes())]
                    for file in sorted(partial.iterdir())
                }
                (partial / _MANIFEST).write_text(
                    json.dumps({"step": step, "score": score, "best": best, "files": files})
                )
        except (StorageError, OSError) as error:
            raise StorageError(f"{error} {self.kept()}") from error
        self.prune()
        return path

    def complete(self) -> list[Checkpoint]:
        """Every whole checkpoint, by step."""
        return [found for path in self._steps() if (found := _read(path)) is not None]

    def latest(self) -> Checkpoint | None:
        """The newest whole checkpoint, or `None`."""
        return next((found for path in reversed(self._steps()) if (found := _read(path)) is not None), None)

    def damaged(self) -> list[Path]:
        """What a crash left: unfinished writes, and folders whose files do not match their manifest."""
        return torn(self.folder) + [path for path in self._steps() if _read(path) is None]

    def clear_damaged(self) -> list[Path]:
        """Removes what `damaged` names, and returns it."""
        found = self.damaged()
        for path in found:
            if path.is_dir() and not path.is_symlink():
                shutil.rmtree(path, ignore_errors=True)
            else:
                path.unlink(missing_ok=True)
        return found

    def prune(self) -> None:
        """Keeps the newest `keep_last`, the best one, and every `keep_every`-th step."""
        found = self.complete()
        keep = {checkpoint.step for checkpoint in found[-self.config.keep_last :]}
        if self.config.keep_best:
            keep |= {
                checkpoint.step
                for checkpoint in found
                if checkpoint.best and not any(later.best for later in found if later.step > checkpoint.step)
            }
        if self.config.keep_every is not None:
            keep |= {checkpoint.step for checkpoint in found if checkpoint.step % self.config.keep_every == 0}
        for checkpoint in found:
            if checkpoint.step not in keep:
                remove_folder(checkpoint.path)

    def kept(self) -> str:
        """One sentence on what is safe after a failed write."""
        latest = self.latest()
        if latest is None:
            return "No earlier checkpoint of this run exists. Free some space and start it again."
        return (
            f"Kept: {latest.path} is complete; nothing before step {latest.step} is lost. Free some space, then"
            f" `groupwise resume {self.folder.parent}`."
        )

    def _steps(self) -> list[Path]:
        """What is named like a checkpoint, oldest first."""
        return sorted(
            (path for path in self.folder.glob("step-*") if path.name.removeprefix("step-").isdecimal()), key=natural
        )


@final
class _Manifest(Config):
    """What a checkpoint says of itself: its step and score, and the size and checksum of every file."""

    step: int
    score: float | None
    best: bool
    files: dict[str, tuple[int, int]]


def _read(path: Path) -> Checkpoint | None:
    """The checkpoint in a folder; `None` where a file is missing or differs from the manifest, or the
    manifest is none.
    """
    try:
        file = path / _MANIFEST
        # A pipe of that name would never end, and nothing of ours is that long.
        if not file.is_file() or file.stat().st_size > _MANIFEST_BYTES:
            return None
        manifest = _Manifest.model_validate_json(file.read_bytes())
        if set(manifest.files) != FILES or path.name != f"step-{manifest.step}":
            return None
        for name, (size, checksum) in manifest.files.items():
            file = path / name
            if not file.is_file() or file.stat().st_size != size or zlib.crc32(file.read_bytes()) != checksum:
                return None
        return Checkpoint(path, manifest.step, manifest.score, manifest.best)
    except (OSError, ValueError):
        return None
