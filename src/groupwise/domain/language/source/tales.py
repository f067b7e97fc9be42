"""Short tales in a small vocabulary: something to write that has a length and may hold together or not."""

from __future__ import annotations

import itertools
import random
from collections.abc import Iterator
from typing import Annotated, Literal, final

from pydantic import Field, model_validator

from groupwise.config.errors import Length
from groupwise.domain.language.source.base import Row, Source, Turns, distinct, require_order

_WHO = (
    "the baker",
    "a sailor",
    "my aunt",
    "the miller",
    "a child",
    "the judge",
    "our cat",
    "the gardener",
    "a painter",
    "the king",
    "a doctor",
    "the fox",
)
_WHERE = (
    "in the harbour",
    "at the market",
    "on the hill",
    "by the river",
    "in the garden",
    "at the station",
    "in the tower",
    "on the bridge",
)
_WHAT = (
    "found a coin",
    "lost a key",
    "heard a song",
    "saw a light",
    "met a friend",
    "wrote a letter",
    "bought a lamp",
    "told a story",
    "took a walk",
    "ate a pear",
)
_WHEN = ("at dawn", "at noon", "at night", "in spring", "in autumn")


@final
class Tales(Source):
    """`tell of the baker in the harbour at dawn ?` is answered by clauses, some of them joined by a connective.

    The demonstrations say little: few clauses, few connectives. Rewards for length and coherence have something to
    move.

    Args:
        min_clauses: fewest clauses of a demonstration.
        max_clauses: most clauses of a demonstration.
        connectives: words that join clauses.
        joined_share: chance that a clause begins with a connective.

    Example:
        >>> source = Tales(min_clauses=2, max_clauses=2)
        >>> row = source.rows(1, seed=0)[0]
        >>> source.demonstration(row, seed=0)[0].count(".")
        2
    """

    kind: Literal["tales"] = "tales"
    min_clauses: Length = 1
    max_clauses: Length = 8
    connectives: Annotated[tuple[str, ...], Field(min_length=1)] = ("because", "therefore", "however", "but")
    joined_share: Annotated[float, Field(ge=0, le=1)] = 0.2

    @model_validator(mode="after")
    def _ordered(self) -> Tales:
        require_order(self, "min_clauses", "max_clauses")
        return self

    def rows(self, num: int | None, seed: int) -> list[Row]:
        return distinct(self._draw(random.Random(f"tales {seed}")), self.identity, num)

    def demonstration(self, row: Row, seed: int) -> Turns:
        draw = random.Random(f"demonstration {seed} {row['prompt']}")
        clauses = []
        for number in range(draw.randint(self.min_clauses, self.max_clauses)):
            joined = [draw.choice(self.connectives)] if number and draw.random() < self.joined_share else []
            who = row["who"] if number == 0 else draw.choice(_WHO)
            clauses.append(" ".join([*joined, who, draw.choice(_WHAT), draw.choice(_WHERE), "."]))
        return [" ".join(clauses)]

    def _draw(self, draw: random.Random) -> Iterator[Row]:
        every = list(itertools.product(_WHO, _WHERE, _WHAT, _WHEN))
        draw.shuffle(every)
        for who, where, what, when in every:
            yield {"prompt": f"tell how {who} {what} {where} {when} ?", "who": who}
