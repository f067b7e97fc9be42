"""A cache of a task model's answers on disk: the answer to a prompt is always the same, and computing it is expensive.

One SQLite database a model, whose name contains which weights, template and machine; one row a prompt:

    key = hash(query, demonstrations in order, answers), value = {answer: nats}

Several processes may read and write at once, and a process that is killed while it writes leaves whole rows.

A missing answer is computed row by row, never in batches: the batch around a row changes its last digits, and a number
must not depend on other rows or on the content of the cache. So a run ends with the same bits whether the database was
empty, half filled by a run that was killed, or full.
"""

import hashlib
import json
import logging
import sqlite3
from collections.abc import Mapping, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any, final

import numpy as np

from groupwise.causal_lm.prompt import encode_middle
from groupwise.checkpoint import cache_folder
from groupwise.config import ConfigError
from groupwise.processor import processor
from groupwise_selection.example import Example, Query
from groupwise_selection.task_model.base import TaskModel
from groupwise_selection.task_model.template import Template

log = logging.getLogger("groupwise")

_WRITTEN_TOGETHER = 32
"""The number of rows that are computed between two writes. A run that is killed loses no more."""


@final
class CachedTaskModel:
    """A task model that passes on only new questions to the model inside; see
    `groupwise_selection.task_model.base.TaskModel`.

    Args:
        model: the task model inside.
        folder: folder of the databases; unset takes `task_model_answers` in Groupwise's cache.
        machine: further influences on the last digits: the device, its threads, the versions of libraries.

    A cache is a convenience: where nothing can be written, there is one warning and the run continues.
    """

    def __init__(self, model: TaskModel, folder: Path | None = None, machine: str = "") -> None:
        self.model = model
        self.hits = 0
        """Number of answers that the cache held."""
        self.misses = 0
        """Number of answers that the model computed."""
        self._fingerprint = model.fingerprint()
        name = hashlib.blake2b(f"{self._fingerprint} {machine}".encode(), digest_size=16).hexdigest()
        self.file = AnswerFile((folder or cache_folder() / "task_model_answers") / f"{name}.sqlite")
        self._new: dict[str, dict[str, Any]] = {}
        # Records are frozen, so that each is hashed once; the reference keeps its identity from being used again.
        self._digests: dict[int, tuple[Example | Query, bytes]] = {}

    def score(
        self, queries: Sequence[Query], demos: Sequence[Sequence[Example]], answers: Sequence[Sequence[str]]
    ) -> list[list[float]]:
        """Computes log-probs as `TaskModel.score` does; the database supplies the known ones and takes new ones."""
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
        """Generates answers as `TaskModel.generate` does; the database supplies known ones and takes new ones."""
        keys = [self._key("generate", query, chosen) for query, chosen in zip(queries, demos, strict=True)]
        for row in self._missing(keys, [1] * len(keys)):
            self._keep(keys[row], {"": self.model.generate([queries[row]], [demos[row]])[0]})
        self._write()
        return [self.file[key][""] for key in keys]

    def _missing(self, keys: Sequence[str], sizes: Sequence[int]) -> list[int]:
        """Lists the first row of each missing key, and counts hits and misses."""
        self.file.read(keys)
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
    """Describes the influences on the last digits of a model's numbers, other than the model and its device."""
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
    """Small tables by key in a database that several processes share; a key that comes again adds to its table.

    Args:
        path: the database; it need not exist.

    Example:
        >>> import tempfile
        >>> path = Path(tempfile.mkdtemp()) / "answers.sqlite"
        >>> AnswerFile(path).add({"a": {"yes": -1.5}})
        >>> AnswerFile(path).add({"a": {"no": -0.25}})
        >>> file = AnswerFile(path)
        >>> file.read(["a"])
        >>> sorted(file["a"].items())
        [('no', -0.25), ('yes', -1.5)]
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._known: dict[str, dict[str, Any]] = {}
        self._works = True

    def __contains__(self, key: str) -> bool:
        return key in self._known

    def __getitem__(self, key: str) -> dict[str, Any]:
        return self._known[key]

    def read(self, keys: Sequence[str]) -> None:
        """Looks up the keys that this process does not know yet."""
        unknown = [(key,) for key in dict.fromkeys(keys) if key not in self._known]
        if unknown:
            self._execute("SELECT key, answer, value FROM answers WHERE key = ?", unknown)

    def add(self, entries: Mapping[str, Mapping[str, Any]]) -> None:
        """Writes answers in one transaction.

        Args:
            entries: key -> table of numbers or texts.
        """
        rows = [(key, answer, json.dumps(value)) for key, table in entries.items() for answer, value in table.items()]
        self._remember(rows)
        self._execute("INSERT OR REPLACE INTO answers VALUES (?, ?, ?)", rows)

    def _execute(self, statement: str, rows: Sequence[tuple[str, ...]]) -> None:
        """Runs a statement for each row. Where the database cannot be used, there is one warning."""
        if not self._works:
            return
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            with closing(sqlite3.connect(self.path, timeout=60)) as database, database:
                database.execute("CREATE TABLE IF NOT EXISTS answers (key, answer, value, PRIMARY KEY (key, answer))")
                for row in rows:
                    self._remember(database.execute(statement, row).fetchall())
        except (OSError, sqlite3.Error) as error:
            self._works = False
            log.warning(
                "%s cannot be used (%s). The run goes on, and its answers are not kept for later ones.",
                self.path,
                error,
            )

    def _remember(self, rows: Sequence[tuple[str, ...]]) -> None:
        for key, answer, value in rows:
            self._known.setdefault(key, {})[answer] = json.loads(value)


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
