"""Any task of the reasoning-gym library, by name."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator, Mapping
from functools import partial
from importlib.metadata import PackageNotFoundError, version
from itertools import count
from typing import Any, Literal, final

from pydantic import Field, model_validator

from groupwise.config import ConfigError, Problem, nearest
from groupwise.domain.language.source.base import Row, Source

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
        # Here, because it loads torch, which a configuration does not.
        from groupwise.domain.language.source.kept_rows import kept_rows

        inputs = {
            "task": self.task,
            "parameters": plain(self.parameters),
            "seed": seed,
            "reasoning-gym": _version(),
            "python": sys.version_info[:2],
        }
        what = f"reasoning-gym makes puzzles of {self.task}"
        return kept_rows(inputs, partial(self._entries, seed), self.identity, num, what=what)

    def _entries(self, seed: int, start: int) -> Iterator[Row]:
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
        for index in count(start):
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


def _version() -> str:
    try:
        return version("reasoning-gym")
    except PackageNotFoundError:  # making the first entry says what to install
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
