"""Any task of the reasoning-gym library, by name."""

from __future__ import annotations

import logging
import re
from collections.abc import Iterator, Mapping
from time import perf_counter
from typing import Any, Literal, final

from pydantic import Field, model_validator

from groupwise.config import ConfigError, Problem, nearest
from groupwise.domain.language.source.base import Row, Source, distinct
from groupwise.processes import is_first_process

log = logging.getLogger("groupwise")

_SILENT_SECONDS = 5.0
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
        # Tasks put texts of theirs into expressions that the library evaluates; without brackets and quotes an
        # expression calls nothing.
        for text in _texts(self.parameters):
            if not _PLAIN.fullmatch(text):
                raise ValueError(
                    f"parameters: {text[:80]!r} could be evaluated as code by reasoning-gym; write words, numbers and"
                    " signs, no brackets or quotes"
                )
        return self

    def rows(self, num: int | None, seed: int) -> list[Row]:
        return distinct(_with_progress_warning(self._draw(seed), self.task, num), self.identity, num)

    def _draw(self, seed: int) -> Iterator[Row]:
        # Here, because the library's import takes longer than listing all experiments.
        import reasoning_gym
        from reasoning_gym.factory import DATASETS

        if self.task not in DATASETS:
            raise ConfigError(
                Problem(
                    f"data.source.task = {self.task!r}",
                    "is no task of reasoning-gym",
                    tuple(sorted(DATASETS)),
                    nearest(self.task, list(DATASETS)),
                )
            )
        try:
            # The size only bounds the index; entries are made one at a time.
            entries = reasoning_gym.create_dataset(self.task, seed=seed, size=1 << 30, **self.parameters)
        except (TypeError, AssertionError, ValueError) as error:
            raise ConfigError(
                f"data.source.parameters = {dict(self.parameters)} is refused by reasoning-gym's task {self.task!r}:"
                f" {error or type(error).__name__}"
            ) from error
        index = 0
        while True:
            entry = entries[index]
            metadata = plain(entry["metadata"])
            # The place of an entry in the endless list says nothing about the puzzle.
            metadata.pop("source_index", None)
            yield {
                "prompt": str(entry["question"]),
                "question": str(entry["question"]),
                "answer": plain(entry["answer"]),
                "metadata": metadata,
            }
            index += 1


def _with_progress_warning(entries: Iterator[Row], task: str, num: int | None) -> Iterator[Row]:
    """Passes the entries on; where making them takes long, a warning says so once, with the time that is left."""
    start, warned = perf_counter(), False
    for num_made, entry in enumerate(entries):
        spent = perf_counter() - start
        if not warned and spent > _SILENT_SECONDS and num_made and is_first_process():
            remaining = "" if num is None else f" of {num:,}; about {spent * (num - num_made) / num_made:.0f} s more"
            log.warning("reasoning-gym makes puzzles of %s at every start: %s%s", task, f"{num_made:,}", remaining)
            warned = True
        yield entry


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
