"""Sorting: digits in any order, asked for in ascending order."""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Annotated, Literal, final

from pydantic import Field, model_validator

from groupwise.config.errors import Length
from groupwise.domain.language.source.base import Row, Source, Turns, distinct, require_order


@final
class Sorting(Source):
    """`sort 3 1 2 ?` is answered by `1 2 3`; a known share of the demonstrations is wrong in one way: they sort
    downwards.

    Systematic errors, as real corpora have them, move the greedy answer too; random ones would leave it right.

    Args:
        min_length: fewest digits.
        max_length: most digits.
        wrong_share: share of demonstrations that sort downwards.

    Example:
        >>> Sorting(min_length=3, max_length=3).rows(1, seed=0)
        [{'prompt': 'sort 0 5 2 ?', 'answer': '0 2 5'}]
    """

    kind: Literal["sorting"] = "sorting"
    min_length: Annotated[Length, Field(ge=2)] = 4
    max_length: Annotated[Length, Field(ge=2)] = 8
    wrong_share: Annotated[float, Field(ge=0, le=1)] = 0.6

    @model_validator(mode="after")
    def _ordered(self) -> Sorting:
        require_order(self, "min_length", "max_length")
        return self

    def rows(self, num: int | None, seed: int) -> list[Row]:
        return distinct(self._draw(random.Random(f"sorting {seed}")), self.identity, num)

    def demonstration(self, row: Row, seed: int) -> Turns:
        wrong = random.Random(f"demonstration {seed} {row['prompt']}").random() < self.wrong_share
        digits = row["answer"].split()
        return [" ".join(reversed(digits) if wrong else digits)]

    def _draw(self, draw: random.Random) -> Iterator[Row]:
        while True:
            digits = [str(draw.randrange(10)) for _ in range(draw.randint(self.min_length, self.max_length))]
            yield {"prompt": f"sort {' '.join(digits)} ?", "answer": " ".join(sorted(digits))}
