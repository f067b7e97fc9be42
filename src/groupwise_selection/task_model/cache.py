"""A cache of a task model's answers on disk: the answer to a prompt is always the same, and computing it is expensive.

One file a model, one line a prompt, each with its own checksum; lines are only ever added. Several processes may add at
once: a lock is held for the time of one write, and each process reads the lines of the others at its next question. A
line that is torn (a process killed while it wrote, a full disk) or damaged is left out with one warning, and its
answers are computed again.

    key = hash(query, demonstrations in order, answers), value = {answer: nats}        the file's name says which
    weights, template and machine

A missing answer is computed row by row, never in batches: the batch around a row changes its last digits, and a number
must not depend on other rows or on the content of the cache. So a run ends with the same bits whether the file was
empty, half filled by a run that was killed, or full.
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

from groupwise.causal_lm.prompt import encode_middle
from groupwise.checkpoint import cache_folder
from groupwise.checkpoint.atomic import storage_error
from groupwise.config import ConfigError
from groupwise.processor import processor
from groupwise_selection.example import Example, Query
from groupwise_selection.task_model.base import TaskModel
from groupwise_selection.task_model.template import Template

log = logging.getLogger("groupwise")

_WRITTEN_TOGETHER = 32
"""Rows that are computed between two writes; a run that is killed loses no more."""


@final
class CachedTaskModel:
    """A task model that passes on only new questions to the model inside; see
    `groupwise_selection.task_model.base.TaskModel`.

    Args:
        model: the task model inside.
        folder: folder of the answer files; unset takes `task_model_answers` in Groupwise's cache.
        machine: further influences on the last digits: the device, its threads, the versions of libraries.

    A cache is a convenience: where nothing can be written, there is one warning and the run goes on.
    """

    def __init__(self, model: TaskModel, folder: Path | None = None, machine: str = "") -> None:
        self.model = model
        self.hits = 0
        """Number of answers that the cache held."""
        self.misses = 0
        """Number of answers that the model computed."""
        self._fingerprint = model.fingerprint()
        name = hashlib.blake2b(f"{self._fingerprint} {machine}".encode(), digest_size=16).hexdigest()
        self.file = AnswerFile((folder or cache_folder() / "task_model_answers") / f"{name}.jsonl")
        self._new: dict[str, dict[str, Any]] = {}
        # Records are frozen, so that each is hashed once; the reference keeps its identity from being used again.
        self._digests: dict[int, tuple[Example | Query, bytes]] = {}

    def score(
        self, queries: Sequence[Query], demos: Sequence[Sequence[Example]], answers: Sequence[Sequence[str]]
    ) -> list[list[float]]:
        """Computes log-probs as `TaskModel.score` does; the file supplies the known ones and takes new ones."""
        keys = [
            self._key("score", query, chosen, row_answers)
            for query, chosen, row_answers in zip(queries, demos, answers, strict=True)
        ]
        for row in self._missing(keys, [len(row_answers) for row_answers in answers]):
            (values,) = self.model.score([queries[row]], [demos[row]], [answers[row]])
            self._keep(keys[row], dict(zip(answers[row], values, strict=True)))
        self._write()
        return [
            [self.file[key][answer] for answer in row_answers] for key, row_answers in zip(keys, answers, strict=True)
        ]

    def generate(self, queries: Sequence[Query], demos: Sequence[Sequence[Example]]) -> list[str]:
        """Generates answers as `TaskModel.generate` does; the file supplies known ones and takes new ones."""
        keys = [self._key("generate", query, chosen) for query, chosen in zip(queries, demos, strict=True)]
        for row in self._missing(keys, [1] * len(keys)):
            self._keep(keys[row], {"": self.model.generate([queries[row]], [demos[row]])[0]})
        self._write()
        return [self.file[key][""] for key in keys]

    def _missing(self, keys: Sequence[str], sizes: Sequence[int]) -> list[int]:
        """Lists the first row of each missing key, and counts hits and misses."""
        self.file.refresh()
        for key, size in zip(keys, sizes, strict=True):
            self.hits += size * (key in self.file)
            self.misses += size * (key not in self.file)
        first_rows = {key: row for row, key in reversed(list(enumerate(keys))) if key not in self.file}
        return sorted(first_rows.values())

    def _keep(self, key: str, table: dict[str, Any]) -> None:
        self._new[key] = table
        if len(self._new) == _WRITTEN_TOGETHER:
            self._write()

    def _write(self) -> None:
        if self._new:
            self.file.add(self._new)
            self._new = {}

    def fingerprint(self) -> str:
        """Returns the fingerprint of the model inside."""
        return self._fingerprint

    def report(self) -> str:
        """Reports the share of answers that the cache held, for people.

        Example:
            `of 1,200 answers of the task model 900 (75 %) were kept from before, in .../4f2a.jsonl`
        """
        total = self.hits + self.misses
        share = f" ({self.hits / total:.0%})" if total else ""
        return f"of {total:,} answers of the task model {self.hits:,}{share} were kept from before, in {self.file.path}"

    def _key(self, kind: str, query: Query, demos: Sequence[Example], answers: Sequence[str] = ()) -> str:
        hasher = hashlib.blake2b(json.dumps([kind, *answers]).encode(), digest_size=16)
        for record in (query, *demos):
            hasher.update(self._digest(record))
        return hasher.hexdigest()

    def _digest(self, record: Example | Query) -> bytes:
        entry = self._digests.get(id(record))
        if entry is None:
            entry = self._digests[id(record)] = (record, digest(record))
        return entry[1]


def machine() -> str:
    """Describes the influences on the last digits of a model's numbers, beside the model and its device."""
    import torch
    import transformers

    return (
        f"torch {torch.__version__}, transformers {transformers.__version__}, {torch.get_num_threads()} threads,"
        f" {processor()}"
    )


def digest(record: Example | Query) -> bytes:
    """Hashes all that a task model may read of a record: everything but its embedding, its pool and the answers of its
    annotators.

    Args:
        record: a demonstration or a query. An image that is a file counts with its content.

    Raises:
        ConfigError: the image cannot be read.

    Example:
        >>> four, five = (Example("a", "2 + 2?", answer, np.ones(1, np.float32)) for answer in ("4", "5"))
        >>> digest(four) == digest(five)
        False
    """
    fields: list[Any] = [record.id, record.question, dict(record.clusters)]
    fields.append(["demonstration", record.answer] if isinstance(record, Example) else ["query", list(record.choices)])
    hasher = hashlib.blake2b(json.dumps(fields, sort_keys=True).encode(), digest_size=16)
    if isinstance(record.image, str | Path):
        try:
            hasher.update(Path(record.image).read_bytes())
        except OSError as error:
            kind = "example" if isinstance(record, Example) else "query"
            raise ConfigError(
                f"{kind} {record.id!r}: field image: {str(record.image)!r} cannot be read: {error}"
            ) from error
    elif record.image is not None:
        pixels = np.ascontiguousarray(record.image)
        hasher.update(f"{pixels.dtype}{pixels.shape}".encode() + pixels.tobytes())
    return hasher.digest()


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
        self._warned: set[str] = set()
        self.refresh()

    def __contains__(self, key: str) -> bool:
        return key in self._known

    def __getitem__(self, key: str) -> dict[str, Any]:
        return self._known[key]

    def refresh(self) -> None:
        """Reads the lines that were added since the last call, up to the last complete line."""
        try:
            with self.path.open("rb") as file, _locked(file, shared=True):
                size = file.seek(0, 2)
                if size < self._read:
                    text = "%s became shorter while it was in use; what was in it stays known to this process"
                    self._warn_once("shorter", text, self.path)
                    self._read = 0
                file.seek(self._read)
                block = file.read()
        except FileNotFoundError:
            return
        except OSError as error:
            text = "%s cannot be read (%s): answers kept in it are computed again"
            self._warn_once("unreadable", text, self.path, error)
            return
        complete = block[: block.rfind(b"\n") + 1]
        self._read += len(complete)
        # The lock keeps writers out while this process reads, so that a line without an end was never finished.
        damaged = int(len(block) > len(complete))
        for line in complete.splitlines():
            entry = _entry(line) if line else None
            if entry is not None:
                self._known.setdefault(entry[0], {}).update(entry[1])
            elif line:
                damaged += 1
        if damaged:
            text = "%s: %d of its lines are torn or damaged; what they held is computed again"
            self._warn_once("damaged", text, self.path, damaged)

    def add(self, entries: Mapping[str, Mapping[str, Any]]) -> None:
        """Writes answers in one piece, after the lines of other processes.

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
            goes_on = "The run goes on, and its answers are not kept for later ones."
            self._warn_once("unwritable", "%s", f"{storage_error(self.path, error)} {goes_on}")

    def _warn_once(self, topic: str, message: str, *values: Any) -> None:
        if topic not in self._warned:
            self._warned.add(topic)
            log.warning(message, *values)


def _line(key: str, value: Mapping[str, Any]) -> bytes:
    body = json.dumps([key, dict(value)], separators=(",", ":")).encode()
    return b"%08x %s\n" % (zlib.crc32(body), body)


def _entry(line: bytes) -> tuple[str, dict[str, Any]] | None:
    """Parses the key and value of a line; returns None where its checksum does not fit."""
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


@final
class Answers:
    """A tokenizer's view of answers.

    Args:
        tokenizer: a tokenizer of transformers.
        template: states the text around an answer, and the texts that end a generated answer.
    """

    def __init__(self, tokenizer: Any, template: Template) -> None:
        self._tokenizer, self._template = tokenizer, template
        backend = getattr(tokenizer, "backend_tokenizer", None)
        self.description: str = (
            backend.to_str() if backend is not None else json.dumps(tokenizer.get_vocab(), sort_keys=True)
        )
        """The serialised tokenizer, for a fingerprint."""
        self._ids_by_answer: dict[str, list[int]] = {}

    def ids(self, answer: str, query: str) -> list[int]:
        """Encodes an answer in the middle of a text, without special tokens.

        Args:
            answer: text of the answer.
            query: id of the query, for an error.

        Raises:
            ConfigError: the answer becomes no token.
        """
        if answer in self._ids_by_answer:
            return self._ids_by_answer[answer]
        text = self._template.answer_text(answer)
        ids = encode_middle(self._tokenizer, text)
        if not ids or not answer.strip():
            raise ConfigError(
                f"query {query!r}: its answer {answer!r} becomes {len(ids)} tokens and no word; every answer needs one"
                " that can be predicted, so write one (`unanswerable`, for example) or leave the query out"
            )
        self._ids_by_answer[answer] = ids
        return ids

    def text(self, ids: Sequence[int]) -> str:
        """Decodes a generated answer, cut at the first stop text, without white space around it."""
        text = self._tokenizer.decode(list(ids), skip_special_tokens=True)
        places = [place for stop in self._template.stop if (place := text.find(stop)) >= 0]
        return text[: min(places, default=len(text))].strip()
