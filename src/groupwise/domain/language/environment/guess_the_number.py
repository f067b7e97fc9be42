"""Guess the number: the environment answers higher or lower until the number is found or the guesses are spent."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal, final

from groupwise.config.numbers import Length
from groupwise.domain.language.environment.base import EnvironmentKind, Step

_MAX_DIGITS = 100


@final
class GuessTheNumber(EnvironmentKind):
    """The column `secret` is to be guessed in `num_guesses` turns; reward 1 when it is found, 0 when it is not.

    A turn that is no number is a wasted guess, answered by `number ?`.

    Example:
        >>> game = GuessTheNumber(num_guesses=3).open()
        >>> game.reset({"secret": 6})
        ''
        >>> [(answer.text, answer.reward, answer.done) for answer in (game.step("9"), game.step("6"))]
        [('lower', None, False), ('', 1.0, True)]
    """

    kind: Literal["guess_the_number"] = "guess_the_number"
    num_guesses: Length = 4
    """Guesses of one game."""

    @property
    def needs(self) -> tuple[str, ...]:
        return ("secret",)

    @property
    def replies(self) -> tuple[str, ...]:
        return ("higher", "lower", "number ?")

    def open(self) -> _Game:
        return _Game(self.num_guesses)


@final
class _Game:
    def __init__(self, num_guesses: int) -> None:
        self.left = num_guesses
        self.secret = 0

    def reset(self, columns: Mapping[str, Any]) -> str:
        self.secret = int(columns["secret"])
        return ""

    def step(self, action: str) -> Step:
        self.left -= 1
        text = action.strip()
        # Python refuses to read a number of thousands of digits.
        guess = int(text) if text.isdecimal() and len(text) <= _MAX_DIGITS else None
        if guess == self.secret:
            return Step(reward=1.0, done=True)
        if self.left == 0:
            return Step(reward=0.0, done=True)
        return Step("number ?" if guess is None else "higher" if guess < self.secret else "lower")
