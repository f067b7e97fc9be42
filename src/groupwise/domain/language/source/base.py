"""The interface of a source of prompts: distinct rows in a fixed order, and perhaps worked examples to start from."""

from __future__ import annotations

import json
from abc import abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import islice
from typing import Any

from groupwise.config import Config

Row = dict[str, Any]
Turns = Sequence[str]
"""The turns that follow a prompt: the policy's first, then the environment's, and so on; the last turn is the
policy's.
"""

REPEATS = 1000
"""A task that gives only known prompts in so many draws has run out of different ones."""


class Source(Config):
    """A source of prompts. Subclasses add a `kind`, their parameters and `rows`."""

    @property
    def endless(self) -> bool:
        """True where rows are made as they are asked for, so that their number must be given."""
        return True

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


def require_order(source: Source, least: str, most: str) -> None:
    """Refuses a source whose smallest size is above its largest.

    Args:
        least, most: the keys of the two sizes.

    Raises:
        ValueError: the first is above the second; names both.
    """
    low, high = getattr(source, least), getattr(source, most)
    if low > high:
        raise ValueError(f"{least} = {low} is above {most} = {high}; write {least} <= {most}")


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
    """Yields the rows that were not seen, until so many draws give none that the task is exhausted.

    Args:
        drawn: the draws.
        identity: returns the text by which two rows are the same.
        seen: the texts of earlier rows; those of the new ones are added.
    """
    while new_row := next(((name, row) for row in islice(drawn, REPEATS) if (name := identity(row)) not in seen), None):
        seen.add(new_row[0])
        yield new_row[1]
