"""The interface of a source of prompts: distinct rows in a fixed order, and perhaps worked examples to start from."""

from __future__ import annotations

import contextlib
import json
import logging
import random
import re
import sys
from abc import abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from importlib.metadata import PackageNotFoundError, version
from itertools import count, islice
from time import perf_counter
from typing import Annotated, Any, ClassVar, Literal, final

from pydantic import Field, model_validator

from groupwise import config
from groupwise.config.files import cache_folder
from groupwise.processes import is_first_process

Row = dict[str, Any]
Turns = Sequence[str]
"""The turns that follow a prompt: the policy's first, then the environment's, and so on; the last turn is the
policy's.
"""

REPEATS = 1000
"""The number of draws in a row that give only known prompts, after which a task counts as exhausted."""


class Source(config.Config):
    """A source of prompts. Subclasses add a `kind`, their parameters and `rows`."""

    endless: ClassVar[bool] = True
    """True where rows are made as they are asked for, so that their number must be given."""

    @abstractmethod
    def rows(self, num: int | None, seed: int) -> list[Row]:
        """Returns at most `num` distinct rows (all of them where `num` is None), the same rows for the same seed."""

    def held_out_rows(self, num: int | None, seed: int) -> list[Row] | None:
        """Returns rows from a separate place to evaluate on; None where they are taken from `rows`."""
        return None

    def identity(self, row: Row) -> str:
        """Returns the text by which two rows are the same prompt, so that nothing held out is trained on."""
        prompt = row["prompt"]
        return prompt if isinstance(prompt, str) else json.dumps(prompt, ensure_ascii=False, sort_keys=True)

    def demonstration(self, row: Row, seed: int) -> Turns | None:
        """Writes a text to learn from by supervision; None where the source has none."""
        return None


def distinct(drawn: Iterable[Row], identity: Any, num: int | None) -> list[Row]:
    """Takes the first `num` rows that differ; fewer where the task has fewer different prompts.

    Example:
        >>> distinct(
        ...     iter([{"prompt": "a"}, {"prompt": "a"}, {"prompt": "b"}, {"prompt": "c"}]), lambda row: row["prompt"], 2
        ... )
        [{'prompt': 'a'}, {'prompt': 'b'}]
    """
    return list(islice(new_rows(iter(drawn), identity, set()), num))


def new_rows(drawn: Iterator[Row], identity: Callable[[Row], str], seen: set[str]) -> Iterator[Row]:
    """Yields the rows that were not seen before. The task counts as exhausted after a long series of draws without a
    new row.

    Args:
        drawn: the draws.
        identity: returns the text by which two rows are the same.
        seen: the texts of earlier rows; those of the new ones are added.
    """
    while new_row := next(((name, row) for row in islice(drawn, REPEATS) if (name := identity(row)) not in seen), None):
        seen.add(new_row[0])
        yield new_row[1]


log = logging.getLogger("groupwise")

WORTH_SECONDS = 1.0
"""Rows that took at least this many seconds to make are written to the cache."""
_SILENT_SECONDS = 5.0


def kept_rows(
    inputs: Mapping[str, Any], drawn: Iterator[Row], identity: Callable[[Row], str], num: int | None, *, what: str
) -> list[Row]:
    """Takes the first `num` rows that differ, as `distinct` does. Rows that took longer than a second to make are kept
    in `$GROUPWISE_CACHE/rows`, and read there the next time.

    Args:
        inputs: all that the rows depend on, as JSON can hold it.
        drawn: makes the rows, of JSON's types.
        identity: returns the text by which two rows are the same.
        num: the number of rows; None takes all, until a thousand draws give no new one.
        what: who makes what, for the log line that is written once if it takes long.

    Example:
        >>> thirds = ({"prompt": place // 3} for place in range(9))
        >>> kept_rows({"list": "thirds"}, thirds, str, 2, what="this example makes thirds")
        [{'prompt': 0}, {'prompt': 1}]
    """
    # Imported here because they load torch, and a configuration must not.
    from groupwise.checkpoint.atomic import StorageError, write_file
    from groupwise.checkpoint.tree import content_key

    path = cache_folder() / "rows" / f"{content_key({**inputs, 'num': num})}.json"
    with contextlib.suppress(OSError, ValueError):
        return json.loads(path.read_text(encoding="utf-8"))
    rows, start, is_said = list[Row](), perf_counter(), not is_first_process()
    for row in islice(new_rows(drawn, identity, set()), num):
        rows.append(row)
        seconds = perf_counter() - start
        if seconds > _SILENT_SECONDS and not is_said:
            is_said, left = True, num and seconds * (num - len(rows)) / len(rows)
            of_all = "" if left is None else f" of {num:,}; about {left:.0f} s more"
            log.warning("%s, which are kept for the next run: %s%s", what, f"{len(rows):,}", of_all)
    if perf_counter() - start > WORTH_SECONDS and is_first_process():
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            write_file(path, json.dumps(rows), durable=False)
        except (OSError, StorageError) as error:
            log.warning("rows that were made are not kept: %s", error)
    return rows


@final
class Nothing(Source):
    """A source without prompts, for a model that is asked something else."""

    kind: Literal["nothing"] = "nothing"

    endless = False

    def rows(self, num: int | None, seed: int) -> list[Row]:
        return []


@final
class Rows(Source):
    """Rows of a Python object: a list of dicts, a `datasets.Dataset`, anything that gives a dict a row each time it is
    gone through. `groupwise.train(..., data=rows)` writes this source.

    Args:
        path: `package.module:name` of the rows.
        held_out_path: of the rows to evaluate on; where absent, `num_held_out` rows are kept from `path`.
        streamed: whether the rows have no length, so that `num_train` sets how many are read.
        shuffle: whether the rows are shuffled before they are split; a stream is read in its order.

    Example:
        >>> Rows(path="package.module:rows").endless
        False
    """

    kind: Literal["rows"] = "rows"
    path: config.InModule
    held_out_path: config.InModule | None = None
    streamed: bool = False
    shuffle: bool = True

    @property
    def endless(self) -> bool:  # pyright: ignore[reportIncompatibleVariableOverride]
        return self.streamed

    def rows(self, num: int | None, seed: int) -> list[Row]:
        rows = _rows_read(self.path, num if self.streamed else None, "data")
        if self.shuffle and not self.streamed:
            random.Random(f"rows {seed}").shuffle(rows)
        return rows[:num]

    def held_out_rows(self, num: int | None, seed: int) -> list[Row] | None:
        return None if self.held_out_path is None else _rows_read(self.held_out_path, num, "eval_data")


def _rows_read(path: config.ImportPath, num: int | None, argument: str) -> list[Row]:
    holder = config.user_object(path, "data.source.path" if argument == "data" else "data.source.held_out_path")
    try:
        rows: list[Any] = list(islice(iter(holder), num))
    # The rows are the user's and may fail in any way.
    except Exception as error:
        raise config.ConfigError(
            f"{argument}: the rows of {path} (of type {type(holder).__name__}) cannot be read: {type(error).__name__}:"
            f" {error}; give a list of dicts, or a datasets.Dataset"
        ) from error
    for number, row in enumerate(rows):
        if not isinstance(row, dict):
            raise config.ConfigError(
                f"{argument}: row {number} is of type {type(row).__name__}; a row is a dict such as"
                ' {"prompt": "2 + 2 =", "answer": "4"}'
            )
    return rows


@final
class Files(Source):
    """Rows of files, shuffled once by the data's seed.

    Args:
        paths: `.jsonl`, `.json` (a list of objects), `.csv`, `.tsv` or `.parquet` files, or `.txt` (a prompt a line).
        held_out_paths: files to evaluate on; where absent, `num_held_out` rows are kept from `paths`.
        shuffle: whether the rows are shuffled before they are split.

    Example:
        >>> Files(paths=("prompts.jsonl",)).endless
        False
    """

    kind: Literal["files"] = "files"
    paths: tuple[str, ...]
    held_out_paths: tuple[str, ...] = ()
    shuffle: bool = True

    endless = False

    def rows(self, num: int | None, seed: int) -> list[Row]:
        return _take(self.paths, "paths", num, seed if self.shuffle else None)

    def held_out_rows(self, num: int | None, seed: int) -> list[Row] | None:
        return (
            _take(self.held_out_paths, "held_out_paths", num, seed if self.shuffle else None)
            if self.held_out_paths
            else None
        )


def _take(paths: tuple[str, ...], key: str, num: int | None, seed: int | None) -> list[Row]:
    rows = [row for path in paths for _, row in config.read_rows(path, f"data.source.{key}")]
    if seed is not None:
        random.Random(f"files {seed}").shuffle(rows)
    return rows[:num]


@final
class Hub(Source):
    """Rows of `datasets.load_dataset(id, name, split=...)`, shuffled once by the data's seed.

    Args:
        id: id on the hub, or a local folder.
        name: configuration of the data set, where it has several.
        split: what is trained on.
        held_out_split: what is evaluated on; where absent, `num_held_out` rows are kept from `split`.
        revision: branch, tag or commit; write one for runs that must repeat.
        shuffle: whether the rows are shuffled before they are split.

    Example:
        >>> Hub(id="openai/gsm8k", name="main", held_out_split="test").split
        'train'
    """

    kind: Literal["hub"] = "hub"
    id: str
    name: str | None = None
    split: str = "train"
    held_out_split: str | None = None
    revision: str | None = None
    shuffle: bool = True

    endless = False

    def rows(self, num: int | None, seed: int) -> list[Row]:
        return self._load(self.split, num, seed)

    def held_out_rows(self, num: int | None, seed: int) -> list[Row] | None:
        return None if self.held_out_split is None else self._load(self.held_out_split, num, seed)

    def _load(self, split: str, num: int | None, seed: int) -> list[Row]:
        import datasets

        try:
            dataset: Any = datasets.load_dataset(self.id, self.name, split=split, revision=self.revision)
        except Exception as error:  # whatever the library raises, from a wrong name to a missing network
            raise config.ConfigError(
                f"data.source: datasets cannot load {self.id!r} (name {self.name!r}, split {split!r}):"
                f" {type(error).__name__}: {error}"
            ) from error
        if self.shuffle:
            dataset = dataset.shuffle(seed=seed)
        return (dataset if num is None else dataset.select(range(min(num, len(dataset))))).to_list()


@final
class Texts(Source):
    """A list of prompts; the first ones are held out.

    Example:
        >>> Texts(prompts=("Why is the sky blue?", "Why is grass green?")).rows(1, seed=0)
        [{'prompt': 'Why is the sky blue?'}]
    """

    kind: Literal["texts"] = "texts"
    prompts: Annotated[tuple[str, ...], Field(min_length=2)]
    """The prompts, in this order."""

    endless = False

    def rows(self, num: int | None, seed: int) -> list[Row]:
        return [{"prompt": prompt} for prompt in self.prompts[:num]]


# Any task of the reasoning-gym library, by name.

_PLAIN = re.compile(r"[\w\s.,:+*/%<>=!&|^~-]*")


@final
class ReasoningGym(Source):
    """Entries of a reasoning-gym task: columns `prompt` (and `question`), `answer`, `metadata`.

    Score them with a reward of kind `reasoning_gym`, which applies the task's own rule.

    Args:
        task: name of the task, such as `countdown` or `knights_knaves`.
        parameters: the task's own parameters by name.

    Example:
        >>> source = ReasoningGym(task="basic_arithmetic", parameters={"max_terms": 2})
        >>> sorted(source.rows(1, seed=0)[0])
        ['answer', 'metadata', 'prompt', 'question']
    """

    kind: Literal["reasoning_gym"] = "reasoning_gym"
    task: str
    parameters: Mapping[str, Any] = Field(default_factory=dict)

    @model_validator(mode="after")
    def _no_expressions(self) -> ReasoningGym:
        # Some tasks insert their texts into expressions that the library evaluates. Without brackets and quotes an
        # expression cannot call anything.
        for text in _texts(self.parameters):
            if not _PLAIN.fullmatch(text):
                raise ValueError(
                    f"parameters: {text[:80]!r} could be evaluated as code by reasoning-gym; write words, numbers and"
                    " signs, no brackets or quotes"
                )
        return self

    def rows(self, num: int | None, seed: int) -> list[Row]:
        inputs = {
            "task": self.task,
            "parameters": plain(self.parameters),
            "seed": seed,
            "reasoning-gym": _version(),
            "python": sys.version_info[:2],
        }
        what = f"reasoning-gym makes puzzles of {self.task}"
        return kept_rows(inputs, self._entries(seed), self.identity, num, what=what)

    def _entries(self, seed: int) -> Iterator[Row]:
        # Imported here because the import takes longer than listing all experiments.
        import reasoning_gym
        from reasoning_gym.factory import DATASETS

        if self.task not in DATASETS:
            raise config.ConfigError(
                config.Problem(
                    f"data.source.task = {self.task!r}",
                    "is no task of reasoning-gym",
                    tuple(sorted(DATASETS)),
                    config.nearest(self.task, list(DATASETS)),
                )
            )
        try:
            # The size only bounds the index; entries are made one at a time.
            entries = reasoning_gym.create_dataset(self.task, seed=seed, size=1 << 30, **self.parameters)
        except (TypeError, AssertionError, ValueError) as error:
            raise config.ConfigError(
                f"data.source.parameters = {dict(self.parameters)} is refused by reasoning-gym's task {self.task!r}:"
                f" {error or type(error).__name__}"
            ) from error
        for index in count():
            entry = entries[index]
            metadata = plain(entry["metadata"])
            # The index in the endless list of entries carries no information about the puzzle.
            metadata.pop("source_index", None)
            yield {
                "prompt": str(entry["question"]),
                "question": str(entry["question"]),
                "answer": plain(entry["answer"]),
                "metadata": metadata,
            }


def _version() -> str:
    try:
        return version("reasoning-gym")
    except PackageNotFoundError:  # the error of the first entry names what to install
        return ""


def _texts(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, Mapping):
        for name, inner in value.items():
            yield from (name, *_texts(inner))
    elif isinstance(value, list | tuple):
        for inner in value:
            yield from _texts(inner)


def plain(value: Any) -> Any:
    """Converts a value to JSON's types: numpy's scalars and strings, tuples and sets become plain ones, anything else
    its text.

    Example:
        >>> plain({"a": (1, {2})})
        {'a': [1, [2]]}
    """
    if isinstance(value, Mapping):
        return {str(key): plain(inner) for key, inner in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        return [plain(inner) for inner in value]
    if value is None or isinstance(value, bool):
        return value
    for kind in (str, int, float):
        if isinstance(value, kind):
            return kind(value)
    return plain(value.item()) if hasattr(value, "item") and getattr(value, "shape", None) == () else str(value)
