"""What a task model answered before, kept on disk: a model's answer to a prompt is always the same, and asking it is
what costs.

One file a model, one line a prompt, each with its own checksum; lines are only ever added. Several processes may add at
once: a lock is held for the time of one write, and each sees what the others added at its next question. A line that is
torn (a process killed while it wrote, a full disk) or damaged is left out, which is said once, and what it held is
computed again.

    key = hash(query, demonstrations in order, answers), value = {answer: nats}        the file's name says which
    weights, template and machine

What is not there is computed row by row, never in batches: in what batch a row stands changes its last digits, and a
number must not depend on what else was asked or kept. So a run ends with the same bits whether the file was empty, half
filled by a run that was killed, or full.
"""

from __future__ import annotations

import hashlib
import json
import logging
import zlib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO, final

import numpy as np

from groupwise.checkpoint import StorageError, cache_folder
from groupwise.checkpoint.atomic import storage_error
from groupwise.config import ConfigError
from groupwise.domain.selection.example import Example, Query
from groupwise.domain.selection.task_model.base import TaskModel
from groupwise.processor import processor

log = logging.getLogger("groupwise")

_WRITTEN_TOGETHER = 32
"""Rows that are computed between two writes; a run that is killed loses no more."""


@final
class CachedTaskModel:
    """A task model that asks the one inside only what it was never asked; see
    `groupwise.domain.selection.task_model.base.TaskModel`.

    Args:
        model: any task model.
        folder: where answers are kept; unset takes `task_model_answers` in Groupwise's cache.
        machine: what else its numbers depend on, in their last digits: the device, its threads, the versions of what
            computes.

    A cache is a convenience: where nothing can be written, that is said once and the run goes on.
    """

    def __init__(self, model: TaskModel, folder: Path | None = None, machine: str = "") -> None:
        self.model = model
        self.hits = 0
        """Answers that were there."""
        self.misses = 0
        """Answers that the model was asked for."""
        self._fingerprint = model.fingerprint()
        name = hashlib.blake2b(f"{self._fingerprint} {machine}".encode(), digest_size=16).hexdigest()
        self.file = AnswerFile((folder or cache_folder() / "task_model_answers") / f"{name}.jsonl")
        self._new: dict[str, dict[str, Any]] = {}
        # Records are frozen, so that one is read for its hash once; holding it keeps its identity from being used
        # again.
        self._digests: dict[int, tuple[Example | Query, bytes]] = {}

    def score(
        self, queries: Sequence[Query], demos: Sequence[Sequence[Example]], answers: Sequence[Sequence[str]]
    ) -> list[list[float]]:
        """See `TaskModel.score`; a row is kept with the answers it was asked for."""
        keys = [
            self._key("score", query, chosen, own) for query, chosen, own in zip(queries, demos, answers, strict=True)
        ]
        for row in self._missing(keys, [len(own) for own in answers]):
            (values,) = self.model.score([queries[row]], [demos[row]], [answers[row]])
            self._keep(keys[row], dict(zip(answers[row], values, strict=True)))
        self._write()
        return [[self.file[key][answer] for answer in own] for key, own in zip(keys, answers, strict=True)]

    def generate(self, queries: Sequence[Query], demos: Sequence[Sequence[Example]]) -> list[str]:
        """See `TaskModel.generate`."""
        keys = [self._key("generate", query, chosen) for query, chosen in zip(queries, demos, strict=True)]
        for row in self._missing(keys, [1] * len(keys)):
            self._keep(keys[row], {"": self.model.generate([queries[row]], [demos[row]])[0]})
        self._write()
        return [self.file[key][""] for key in keys]

    def _missing(self, keys: Sequence[str], sizes: Sequence[int]) -> list[int]:
        """The first row of each key that is not there; counts answers as they are found."""
        self.file.refresh()
        for key, size in zip(keys, sizes, strict=True):
            self.hits += size * (key in self.file)
            self.misses += size * (key not in self.file)
        first = {key: row for row, key in reversed(list(enumerate(keys))) if key not in self.file}
        return sorted(first.values())

    def _keep(self, key: str, table: dict[str, Any]) -> None:
        self._new[key] = table
        if len(self._new) == _WRITTEN_TOGETHER:
            self._write()

    def _write(self) -> None:
        if self._new:
            self.file.add(self._new)
            self._new = {}

    def fingerprint(self) -> str:
        """The model's."""
        return self._fingerprint

    def report(self) -> str:
        """How many answers were there, for people.

        Example:
            `of 1,200 answers of the task model 900 (75 %) were kept from before, in .../4f2a.jsonl`
        """
        total = self.hits + self.misses
        share = f" ({self.hits / total:.0%})" if total else ""
        return f"of {total:,} answers of the task model {self.hits:,}{share} were kept from before, in {self.file.path}"

    def _key(self, kind: str, query: Query, demos: Sequence[Example], answers: Sequence[str] = ()) -> str:
        found = hashlib.blake2b(json.dumps([kind, *answers]).encode(), digest_size=16)
        for record in (query, *demos):
            found.update(self._digest(record))
        return found.hexdigest()

    def _digest(self, record: Example | Query) -> bytes:
        known = self._digests.get(id(record))
        if known is None:
            known = self._digests[id(record)] = (record, digest(record))
        return known[1]


def machine() -> str:
    """What the last digits of a model's numbers depend on beside the model and its device."""
    import torch
    import transformers

    return (
        f"torch {torch.__version__}, transformers {transformers.__version__}, {torch.get_num_threads()} threads,"
        f" {processor()}"
    )


def digest(record: Example | Query) -> bytes:
    """A hash of all that a task model may read of a record: everything but its embedding, its pool and what its
    annotators said.

    Args:
        record: a demonstration or a query. An image that is a file counts with its content.

    Raises:
        ConfigError: an image that cannot be read.

    Example:
        >>> one, other = (Example("a", "2 + 2?", answer, np.ones(1, np.float32)) for answer in ("4", "5"))
        >>> digest(one) == digest(other)
        False
    """
    told: list[Any] = [record.id, record.question, dict(record.clusters)]
    told.append(["demonstration", record.answer] if isinstance(record, Example) else ["query", list(record.choices)])
    found = hashlib.blake2b(json.dumps(told, sort_keys=True).encode(), digest_size=16)
    if isinstance(record.image, str | Path):
        try:
            found.update(Path(record.image).read_bytes())
        except OSError as error:
            kind = "example" if isinstance(record, Example) else "query"
            raise ConfigError(
                f"{kind} {record.id!r}: field image: {str(record.image)!r} cannot be read: {error}"
            ) from error
    elif record.image is not None:
        pixels = np.ascontiguousarray(record.image)
        found.update(f"{pixels.dtype}{pixels.shape}".encode() + pixels.tobytes())
    return found.digest()


@final
class AnswerFile:
    """Small tables by key in a file that several processes add to; a key that comes again adds to its table.

    Args:
        path: the file; it need not exist.

    Example:
        >>> import tempfile
        >>> path = Path(tempfile.mkdtemp()) / "answers.jsonl"
        >>> AnswerFile(path).add({"a": {"yes": -1.5}})
        >>> AnswerFile(path).add({"a": {"no": -0.25}})
        >>> AnswerFile(path)["a"]
        {'yes': -1.5, 'no': -0.25}
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._known: dict[str, dict[str, Any]] = {}
        self._read = 0
        self._said: set[str] = set()
        self.refresh()

    def __contains__(self, key: str) -> bool:
        return key in self._known

    def __getitem__(self, key: str) -> dict[str, Any]:
        return self._known[key]

    def refresh(self) -> None:
        """Reads what was added since, up to the last whole line."""
        try:
            with self.path.open("rb") as file, _locked(file, shared=True):
                size = file.seek(0, 2)
                if size < self._read:
                    self._say(
                        "shorter",
                        "%s became shorter while it was in use; what was in it stays known to this process",
                        self.path,
                    )
                    self._read = 0
                file.seek(self._read)
                block = file.read()
        except FileNotFoundError:
            return
        except OSError as error:
            self._say("unreadable", "%s cannot be read (%s): answers kept in it are computed again", self.path, error)
            return
        whole = block[: block.rfind(b"\n") + 1]
        self._read += len(whole)
        # Nobody writes while this process reads, so that what has no line end was never finished.
        damaged = int(len(block) > len(whole))
        for line in whole.splitlines():
            entry = _entry(line) if line else None
            if entry is not None:
                self._known.setdefault(entry[0], {}).update(entry[1])
            elif line:
                damaged += 1
        if damaged:
            self._say(
                "damaged",
                "%s: %d of its lines are torn or damaged; what they held is computed again",
                self.path,
                damaged,
            )

    def add(self, entries: Mapping[str, Mapping[str, Any]]) -> None:
        """Writes answers in one piece, after what others have written.

        Args:
            entries: key -> table of numbers or texts.
        """
        for key, table in entries.items():
            self._known.setdefault(key, {}).update(table)
        lines = b"".join(_line(key, value) for key, value in entries.items())
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            with self.path.open("ab+") as file, _locked(file):
                end = file.seek(0, 2)
                if end and (file.seek(end - 1), file.read(1))[1] != b"\n":
                    lines = b"\n" + lines  # a torn line of a process that was killed stays a line of its own
                file.write(lines)
                file.flush()
                if end == self._read:
                    self._read = file.tell()
        except OSError as error:
            self._say(
                "unwritable",
                "%s",
                StorageError(
                    f"{storage_error(self.path, error)} The run goes on, and its answers are not kept for later ones."
                ),
            )

    def _say(self, what: str, message: str, *values: Any) -> None:
        if what not in self._said:
            self._said.add(what)
            log.warning(message, *values)


def _line(key: str, value: Mapping[str, Any]) -> bytes:
    body = json.dumps([key, dict(value)], separators=(",", ":")).encode()
    return b"%08x %s\n" % (zlib.crc32(body), body)


def _entry(line: bytes) -> tuple[str, dict[str, Any]] | None:
    """The key and value of a line; None where its checksum does not fit."""
    check, _, body = line.partition(b" ")
    try:
        if int(check, 16) != zlib.crc32(body) or len(check) != 8:
            return None
        key, value = json.loads(body)
    except ValueError:
        return None
    return key, value


@contextmanager
def _locked(file: BinaryIO | Any, shared: bool = False) -> Iterator[None]:
    try:
        import fcntl
    except ImportError:  # not on Windows, where a short append is left to the operating system
        yield
        return
    fcntl.flock(file, fcntl.LOCK_SH if shared else fcntl.LOCK_EX)
    try:
        yield
    finally:
        file.flush()
        fcntl.flock(file, fcntl.LOCK_UN)
