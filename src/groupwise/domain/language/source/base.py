"""What every source of prompts has: distinct rows in a fixed order, and perhaps worked examples to start from."""

from __future__ import annotations

import json
from abc import abstractmethod
from collections.abc import Iterable, Sequence
from itertools import islice
from typing import Any, Literal, final

from groupwise.config import Config

Row = dict[str, Any]
Turns = Sequence[str]
"""What is written after a prompt, turn by turn: the policy's first, then the environment's, and so on; it ends with the
policy's.
"""

# A task that keeps drawing what it drew before has run out of different prompts.
_REPEATS = 1000


class Source(Config):
    """Where prompts come from. Subclasses add a `kind`, their parameters and `rows`."""

    @property
    def endless(self) -> bool:
        """Whether the rows are made as they are asked for, so that their number must be given."""
        return True

    @abstractmethod
    def rows(self, num: int | None, seed: int) -> list[Row]:
        """At most `num` distinct rows (all there are where `num` is None), the same ones for the same seed."""

    def held_out_rows(self, num: int | None, seed: int) -> list[Row] | None:
        """Rows from a place of their own to evaluate on; None where they are taken from `rows`."""
        return None

    def identity(self, row: Row) -> str:
        """What makes two rows the same prompt, so that nothing held out is trained on."""
        prompt = row["prompt"]
        return prompt if isinstance(prompt, str) else json.dumps(prompt, ensure_ascii=False, sort_keys=True)

    def demonstration(self, row: Row, seed: int) -> Turns | None:
        """A text to learn from by supervision; None where the source has none."""
        return None


@final
class Nothing(Source):
    """No prompts at all: of a model that is asked something else."""

    kind: Literal["nothing"] = "nothing"

    @property
    def endless(self) -> bool:
        return False

    def rows(self, num: int | None, seed: int) -> list[Row]:
        return []


def distinct(drawn: Iterable[Row], identity: Any, num: int | None) -> list[Row]:
    """The first `num` rows that differ; fewer where the task has fewer different prompts.

    Example:
        >>> distinct(
        ...     iter([{"prompt": "a"}, {"prompt": "a"}, {"prompt": "b"}, {"prompt": "c"}]), lambda row: row["prompt"], 2
        ... )
        [{'prompt': 'a'}, {'prompt': 'b'}]
    """
    seen: set[str] = set()
    kept: list[Row] = []
    drawn = iter(drawn)
    while num is None or len(kept) < num:
        # One new row in so many draws, or the task is exhausted.
        fresh = next(((row, name) for row in islice(drawn, _REPEATS) if (name := identity(row)) not in seen), None)
        if fresh is None:
            break
        kept.append(fresh[0])
        seen.add(fresh[1])
    return kept
