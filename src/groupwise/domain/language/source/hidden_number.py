"""A hidden number in a known range, for the game of guessing it."""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping, Sequence
from typing import Annotated, Any, Literal, final

from pydantic import Field, model_validator

from groupwise.config.errors import Length
from groupwise.domain.language.source.base import Row, Source, Turns, distinct


@final
class HiddenNumber(Source):
    """`between 12 and 30 ?`, with a number that only the environment sees (`environment.kind = "guess_the_number"`).

    The demonstrations play as somebody who does not think ahead and does not always listen: any number that the answers
    so far leave possible, or, now and then, any number of the range.

    Args:
        largest: numbers run from 1 to this.
        min_size: fewest numbers in a range.
        max_size: most numbers in a range.
        careless_share: chance that a guess of a demonstration ignores the answers before it.
        num_guesses: guesses in a demonstration, at most; give the environment the same.

    Example:
        >>> row = HiddenNumber().rows(1, seed=1)[0]
        >>> row["low"] <= row["secret"] <= row["high"]
        True
    """

    kind: Literal["hidden_number"] = "hidden_number"
    largest: Annotated[Length, Field(ge=2)] = 64
    min_size: Annotated[Length, Field(ge=2)] = 12
    max_size: Annotated[Length, Field(ge=2)] = 20
    careless_share: Annotated[float, Field(ge=0, le=1)] = 0.4
    num_guesses: Length = 4

    @model_validator(mode="after")
    def _fits(self) -> HiddenNumber:
        if not self.min_size <= self.max_size <= self.largest:
            raise ValueError(
                f"write min_size <= max_size <= largest; got {self.min_size}, {self.max_size} and {self.largest}"
            )
        return self

    def rows(self, num: int | None, seed: int) -> list[Row]:
        return distinct(self._draw(random.Random(f"number {seed}")), self.identity, num)

    def identity(self, row: Row) -> str:
        return f"{row['prompt']} {row['secret']}"

    def demonstration(self, row: Row, seed: int) -> Turns:
        draw = random.Random(f"demonstration {seed} {self.identity(row)}")
        low, high, secret = row["low"], row["high"], row["secret"]
        turns: list[str] = []
        while True:
            careless = draw.random() < self.careless_share
            guess = draw.randint(row["low"], row["high"]) if careless else draw.randint(low, high)
            turns.append(str(guess))
            if guess == secret or len(turns) // 2 + 1 >= self.num_guesses:
                return turns
            turns.append("higher" if guess < secret else "lower")
            low, high = (max(low, guess + 1), high) if guess < secret else (low, min(high, guess - 1))

    def _draw(self, draw: random.Random) -> Iterator[Row]:
        while True:
            size = draw.randint(self.min_size, self.max_size)
            low = draw.randint(1, self.largest - size + 1)
            high = low + size - 1
            yield {"prompt": f"between {low} and {high} ?", "low": low, "high": high, "secret": draw.randint(low, high)}


def patient(
    completions: Sequence[Sequence[Mapping[str, Any]]],
    low: Sequence[int],
    high: Sequence[int],
    secret: Sequence[int],
    **columns: Any,
) -> list[float]:
    """Judges the guesses apart from the reward: 1 where every guess was still possible after the answers before it.
    Completions are conversations.

    Example:
        >>> patient(
        ...     [
        ...         [
        ...             {"role": "assistant", "content": "9"},
        ...             {"role": "user", "content": "lower"},
        ...             {"role": "assistant", "content": "12"},
        ...         ]
        ...     ],
        ...     [1],
        ...     [15],
        ...     [6],
        ... )
        [0.0]
    """
    games = [
        [message["content"] for message in completion if message["role"] == "assistant"] for completion in completions
    ]
    return [float(_possible(guesses, *bounds)) for guesses, *bounds in zip(games, low, high, secret, strict=True)]


def _possible(guesses: Sequence[str], low: int, high: int, secret: int) -> bool:
    for guess in guesses:
        # Python refuses to read a number of thousands of digits.
        if not guess.isdecimal() or len(guess) > 100 or not low <= int(guess) <= high:
            return False
        low, high = (int(guess) + 1, high) if int(guess) < secret else (low, int(guess) - 1)
    return bool(guesses)
