"""The common part of rewards that compare with an expected answer: its column, and the values of right and wrong
answers.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from typing import Any

from groupwise.reward.base import Reward, Value
from groupwise.reward.text import Text, completion_text


class Answer(Reward):
    """`judge(text, expected)` for every member; missing where None is expected. Subclasses add a `kind`, `judge`."""

    column: str = "answer"
    """The data column with the expected answer."""
    correct: float = 1.0
    """Reward of a right answer."""
    wrong: float = 0.0
    """Reward of every completion without a right answer."""

    @property
    def needs(self) -> tuple[str, ...]:
        """The column with the expected answer."""
        return (self.column,)

    def __call__(self, prompts: Sequence[Text], completions: Sequence[Text], **columns: Sequence[Any]) -> list[Value]:
        return [
            None if expected is None else self.judge(completion_text(completion), expected)
            for completion, expected in zip(completions, columns[self.column], strict=True)
        ]

    @abstractmethod
    def judge(self, text: str, expected: Any) -> Value:
        """Computes the reward of one completion.

        Args:
            expected: the expected answer, as it stands in the column.
        """
