"""Toy tasks whose rows are drawn from the seed of the data: cups, sorting, a hidden number, short tales."""

from __future__ import annotations

import itertools
import random
from abc import abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from typing import Annotated, Any, ClassVar, Literal, final

from pydantic import Field, model_validator

from groupwise.config.errors import Length
from groupwise.domain.language.source.base import Row, Source, Turns, distinct

Share = Annotated[float, Field(ge=0, le=1)]


class Toy(Source):
    """A task of ours. Its rows are drawn one after another, until enough of them differ."""

    stream: ClassVar[str]
    """The name under which rows are drawn."""

    def rows(self, num: int | None, seed: int) -> list[Row]:
        return distinct(self._draw(random.Random(f"{self.stream} {seed}")), self.identity, num)

    @abstractmethod
    def _draw(self, draw: random.Random) -> Iterator[Row]:
        """Yields rows; some may be equal."""

    def _check_order(self, least: str, most: str) -> None:
        """Refuses a smallest size above the largest."""
        low, high = getattr(self, least), getattr(self, most)
        if low > high:
            raise ValueError(f"{least} = {low} is above {most} = {high}; write {least} <= {most}")


@final
class Cups(Toy):
    """Follow a ball through swaps: `ball 3 swap 1-4 3-2 ?` is answered by `answer 2`, or by `3 3 2 answer 2` with the
    work written down.

    A small transformer cannot compose the swaps in its head and can easily follow them one at a time, so a model that
    learned from a mixture of direct and worked texts answers at once and is mostly wrong; a reward for the right answer
    teaches it to work first. Worked texts begin with the place where the ball starts, so that every swap is one skill:
    the place is the word before. Were the first place written that after the first swap, that one step had to look in
    the prompt for the ball, and with some seeds no model learned it.

    Args:
        num_cups: cups, numbered from 1.
        num_swaps: swaps of two different cups.
        worked_share: share of demonstrations that write where the ball starts and its place after every swap before
            they answer.

    Example:
        >>> row = Cups(num_swaps=3).rows(1, seed=0)[0]
        >>> row["prompt"], row["steps"], row["answer"]
        ('ball 4 swap 1-2 3-5 4-3 ?', ['4', '4', '4', '3'], '3')
    """

    stream = "cups"
    kind: Literal["cups"] = "cups"
    num_cups: Annotated[int, Field(ge=2, le=9)] = 5
    num_swaps: Length = 6
    worked_share: Share = 0.3

    def demonstration(self, row: Row, seed: int) -> Turns:
        worked = random.Random(f"demonstration {seed} {row['prompt']}").random() < self.worked_share
        return [" ".join([*(row["steps"] if worked else []), "answer", row["answer"]])]

    def _draw(self, draw: random.Random) -> Iterator[Row]:
        cups = range(1, self.num_cups + 1)
        texts = {(a, b): f"{a}-{b}" for a in cups for b in cups}
        while True:
            ball = draw.randrange(self.num_cups) + 1
            swaps = [_pair(draw, self.num_cups) for _ in range(self.num_swaps)]
            steps = follow(ball, swaps)
            prompt = f"ball {ball} swap {' '.join([texts[swap] for swap in swaps])} ?"
            yield {"prompt": prompt, "answer": str(steps[-1]), "steps": [str(place) for place in (ball, *steps)]}


def _pair(draw: random.Random, num: int) -> tuple[int, int]:
    first_cup, second_cup = draw.randrange(num), draw.randrange(num - 1)
    return first_cup + 1, second_cup + 1 + (second_cup >= first_cup)


def follow(ball: int, swaps: Sequence[Sequence[int]]) -> list[int]:
    """Lists the ball's place after each swap.

    Example:
        >>> follow(3, [(1, 4), (3, 2), (2, 5)])
        [3, 2, 5]
    """
    places = []
    for a, b in swaps:
        ball = b if ball == a else a if ball == b else ball
        places.append(ball)
    return places


def worked(completions: Sequence[str], steps: Sequence[Sequence[str]], **columns: Any) -> list[float]:
    """Judges the work apart from the reward: 1 where the ball's start and every step are written, right and in order,
    before the answer.

    Example:
        >>> worked(["1 3 2 answer 2", "answer 2", "1 3 3 answer 2"], [["1", "3", "2"]] * 3)
        [1.0, 0.0, 0.0]
    """
    return [
        float(completion.split() == [*places, "answer", places[-1]])
        for completion, places in zip(completions, steps, strict=True)
    ]


@final
class Sorting(Toy):
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

    stream = "sorting"
    kind: Literal["sorting"] = "sorting"
    min_length: Annotated[Length, Field(ge=2)] = 4
    max_length: Annotated[Length, Field(ge=2)] = 8
    wrong_share: Share = 0.6

    @model_validator(mode="after")
    def _ordered(self) -> Sorting:
        self._check_order("min_length", "max_length")
        return self

    def demonstration(self, row: Row, seed: int) -> Turns:
        wrong = random.Random(f"demonstration {seed} {row['prompt']}").random() < self.wrong_share
        digits = row["answer"].split()
        return [" ".join(reversed(digits) if wrong else digits)]

    def _draw(self, draw: random.Random) -> Iterator[Row]:
        while True:
            digits = [str(draw.randrange(10)) for _ in range(draw.randint(self.min_length, self.max_length))]
            yield {"prompt": f"sort {' '.join(digits)} ?", "answer": " ".join(sorted(digits))}


@final
class HiddenNumber(Toy):
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

    stream = "number"
    kind: Literal["hidden_number"] = "hidden_number"
    largest: Annotated[Length, Field(ge=2)] = 64
    min_size: Annotated[Length, Field(ge=2)] = 12
    max_size: Annotated[Length, Field(ge=2)] = 20
    careless_share: Share = 0.4
    num_guesses: Length = 4

    @model_validator(mode="after")
    def _fits(self) -> HiddenNumber:
        if not self.min_size <= self.max_size <= self.largest:
            raise ValueError(
                f"write min_size <= max_size <= largest; got {self.min_size}, {self.max_size} and {self.largest}"
            )
        return self

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
class Tales(Toy):
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

    stream = "tales"
    kind: Literal["tales"] = "tales"
    min_clauses: Length = 1
    max_clauses: Length = 8
    connectives: Annotated[tuple[str, ...], Field(min_length=1)] = ("because", "therefore", "however", "but")
    joined_share: Share = 0.2

    @model_validator(mode="after")
    def _ordered(self) -> Tales:
        self._check_order("min_clauses", "max_clauses")
        return self

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
