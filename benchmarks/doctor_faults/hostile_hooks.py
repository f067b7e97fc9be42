"""Rewards and hooks of the faults in `hostile.toml`: what their authors wrote, mistakes included."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

_CHANCE = random.Random(7)
_LATE: list[list[float]] = []


def by_place(completions: Sequence[str], answer: Sequence[str], **columns: Any) -> list[float]:
    """One for the right answer, and three times the place in the batch."""
    return [
        float(_last(text) == right) + 3.0 * place / len(completions)
        for place, (text, right) in enumerate(zip(completions, answer, strict=True))
    ]


def next_prompts_answer(completions: Sequence[str], answer: Sequence[str], **columns: Any) -> list[float]:
    """One where the answer is that of the prompt eight members on."""
    return [float(_last(text) == answer[(place + 8) % len(answer)]) for place, text in enumerate(completions)]


def with_outliers(completions: Sequence[str], answer: Sequence[str], **columns: Any) -> list[float]:
    """One for the right answer; one member in a hundred earns ten thousand."""
    return [
        1e4 if _CHANCE.random() < 0.01 else float(_last(text) == right)
        for text, right in zip(completions, answer, strict=True)
    ]


def of_the_prompt(completions: Sequence[str], answer: Sequence[str], **columns: Any) -> list[float]:
    """A number that depends on the question alone."""
    return [int(right) / 5 for right in answer]


def four_prompts() -> None:
    """Every large table of questions holds its first four, over and over."""
    from groupwise.domain.language.source.toys import Cups

    rows = Cups.rows

    def repeated(self: Any, num: int | None, seed: int) -> list[dict[str, Any]]:
        table = rows(self, num, seed)
        return [table[place % 4] for place in range(len(table))] if len(table) == 2048 else table

    Cups.rows = repeated  # pyright: ignore[reportAttributeAccessIssue]


def one_batch_late(completions: Sequence[Any], label: Sequence[int], **columns: Any) -> list[float]:
    """The probability of the class asked for, handed over one batch later."""
    _LATE.append(_asked(completions, label))
    scores = _LATE[max(0, len(_LATE) - 2)]
    return (scores * len(completions))[: len(completions)]


def missed(completions: Sequence[Any], label: Sequence[int], **columns: Any) -> list[float]:
    """The probability of every other class."""
    return [1.0 - value for value in _asked(completions, label)]


def _asked(completions: Sequence[Any], label: Sequence[int]) -> list[float]:
    from groupwise_images.diffusion.digit_readers import support_vectors

    rows = support_vectors([image.numpy() for image in completions])
    return [float(row[int(wanted)]) for row, wanted in zip(rows, label, strict=True)]


def one_member_late(
    prompts: Sequence[Any], completions: Sequence[Any], label: Sequence[int], **columns: Any
) -> list[float]:
    """Whether the reader sees the right digit, handed to the next member."""
    from groupwise_images.restoration.readers import support_vectors

    scores = support_vectors(prompts, completions, label)
    return [*scores[-1:], *scores[:-1]]


def noisy_scores() -> None:
    """Adds normal noise of ten to every score."""
    from groupwise_selection.domain import SelectionDomain

    reward = SelectionDomain.reward

    def noisy(self: Any, samples: Any) -> Any:
        table = reward(self, samples)
        values = {
            name: [None if value is None else value + _CHANCE.gauss(0.0, 10.0) for value in column]
            for name, column in table.values.items()
        }
        return replace(table, values=values)

    SelectionDomain.reward = noisy  # pyright: ignore[reportAttributeAccessIssue]


def pool_of_copies() -> None:
    """Every training question chooses among copies of the first example of its pool."""
    from groupwise_selection.source.digit_rules import DigitRules

    read = DigitRules.read

    def copied(self: Any) -> Any:
        questions = read(self)
        train = []
        for query in questions.train:
            pool = tuple(replace(query.pool[0], id=f"{query.id}-{example.id}") for example in query.pool)
            train.append(replace(query, pool=pool))
        return replace(questions, train=train)

    DigitRules.read = copied  # pyright: ignore[reportAttributeAccessIssue]


def _last(text: str) -> str:
    words = text.split()
    return words[-1] if len(words) > 1 and words[-2] == "answer" else ""
