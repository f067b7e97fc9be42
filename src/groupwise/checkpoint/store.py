"""The checkpoints of one run: written whole or not at all, kept by rule, found again after any crash."""

from __future__ import annotations

import json
import shutil
import zlib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from groupwise.checkpoint.atomic import StorageError, new_folder, remove_folder, torn
from groupwise.checkpoint.config import CheckpointConfig
from groupwise.checkpoint.tree import load_tree, save_tree
from groupwise.runs.natural import natural

_MANIFEST = "manifest.json"


@dataclass(frozen=True)
class Checkpoint:
    """One complete checkpoint: the step it belongs to, the held-out score then (or `None`), and whether it was the best so far.

    Args:
        path: its folder.
        step: of the run.
        score: the held-out score then.
        best: whether it was the best so far.
    """

    path: Path
    step: int
    score: float | None
    best: bool

    def load(self) -> Any:
        """The saved record, tensors on the CPU."""
        return load_tree(self.path)


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
            score: the held-out score, where this is the best.
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
                files = {file.name: [file.stat().st_size, zlib.crc32(file.read_bytes())] for file in sorted(partial.iterdir())}
                (partial / _MANIFEST).write_text(json.dumps({"step": step, "score": score, "best": best, "files": files}))
        except (StorageError, OSError) as error:
            raise StorageError(f"{error} {self.kept()}") from error
        self.prune()
        return path

    def complete(self) -> list[Checkpoint]:
        """Every whole checkpoint, by step."""
        return [found for path in sorted(self.folder.glob("step-*"), key=natural) if (found := _read(path)) is not None]

    def latest(self) -> Checkpoint | None:
        """The newest whole checkpoint, or `None`."""
        paths = sorted(self.folder.glob("step-*"), key=natural, reverse=True)
        return next((found for path in paths if (found := _read(path)) is not None), None)

    def damaged(self) -> list[Path]:
        """What a crash left: unfinished writes, and folders whose files do not match their manifest."""
        return torn(self.folder) + [path for path in sorted(self.folder.glob("step-*"), key=natural) if _read(path) is None]

    def clear_damaged(self) -> list[Path]:
        """Removes what `damaged` names, and returns it."""
        found = self.damaged()
        for path in found:
            shutil.rmtree(path, ignore_errors=True)
        return found

    def prune(self) -> None:
        """Keeps the newest `keep_last`, the best one, and every `keep_every`-th step."""
        found = self.complete()
        keep = {checkpoint.step for checkpoint in found[-self.config.keep_last :]}
        if self.config.keep_best:
            keep |= {checkpoint.step for checkpoint in found if checkpoint.best and not any(later.best for later in found if later.step > checkpoint.step)}
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
        return f"Kept: {latest.path} is complete; nothing before step {latest.step} is lost. Free some space, then `groupwise resume {self.folder.parent}`."


def _read(path: Path) -> Checkpoint | None:
    try:
        manifest = json.loads((path / _MANIFEST).read_text())
        for name, (size, checksum) in manifest["files"].items():
            data = (path / name).read_bytes()
            if len(data) != size or zlib.crc32(data) != checksum:
                return None
        return Checkpoint(path, manifest["step"], manifest["score"], manifest["best"])
    except (OSError, ValueError, KeyError, TypeError):
        return None
