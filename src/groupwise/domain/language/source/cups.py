"""The cups game: a ball lies under one of some cups, pairs of cups are swapped, where is the ball?"""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from typing import Annotated, Any, Literal, final

from pydantic import Field

from groupwise.config.errors import Length
from groupwise.domain.language.source.base import Row, Source, Turns, distinct


@final
class Cups(Source):
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

    kind: Literal["cups"] = "cups"
    num_cups: Annotated[int, Field(ge=2, le=9)] = 5
    num_swaps: Length = 6
    worked_share: Annotated[float, Field(ge=0, le=1)] = 0.3

    def rows(self, num: int | None, seed: int) -> list[Row]:
        return distinct(self._draw(random.Random(f"cups {seed}")), self.identity, num)

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
