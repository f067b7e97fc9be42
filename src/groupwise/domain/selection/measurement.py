"""What an ordered choice of demonstrations is worth: the task model's answer after it, and how probable the right ones
are.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, final

from groupwise.domain.selection.example import Example, Query
from groupwise.domain.selection.reward.vqa_accuracy import AccuracyForm, relevance, vqa_accuracy
from groupwise.domain.selection.reward.vqa_normalise import normalise
from groupwise.domain.selection.task_model.base import TaskModel

FIELDS = ("correct", "accuracy", "info", "expected", "probability", "quality", "relevance")
"""What is measured of a choice; rewards find each as a column of its name."""

Order = Literal["first_pick_first", "first_pick_last"]


@final
@dataclass(frozen=True)
class Measured:
    """What became of one query after some demonstrations.

    Args:
        prediction: the task model's answer.
        correct: 1 where it is what most annotators said, otherwise 0.
        accuracy: VQA accuracy of the prediction, in [0, 1].
        info: `P(y | query, demonstrations) - P(y | query)` of the answer `y` that most annotators gave.
        expected: `sum_a P(a | query, demonstrations) accuracy(a)` over the annotators' answers.
        probability: `P(y | query, demonstrations)`.
        quality: what a search would score the choice by: `info`.
        relevance: how near the prediction is in words, in [0, 1].
    """

    prediction: str
    correct: float
    accuracy: float
    info: float
    expected: float
    probability: float
    quality: float
    relevance: float


def in_order(picked: Sequence[Example], order: Order) -> tuple[Example, ...]:
    """Picked examples in the order in which the task model reads them; the query comes last.

    Args:
        picked: in the order of picking.
        order: where the first pick stands: at the beginning, or next to the query.

    Example:
        >>> in_order("ca", "first_pick_last")
        ('a', 'c')
    """
    return tuple(picked) if order == "first_pick_first" else tuple(picked)[::-1]


def shown(pool: Sequence[Example], picks: Sequence[int], order: Order) -> tuple[Example, ...]:
    """The picked examples of a pool, as the task model reads them.

    Args:
        pool: of the query.
        picks: places in it, in the order of picking.
        order: see `in_order`.

    Example:
        >>> shown("abc", [2, 0], "first_pick_last")
        ('a', 'c')
    """
    return in_order([pool[place] for place in picks], order)


@final
class Measures:
    """Measures choices with a task model; equal ones are measured once a call.

    Nothing that a model computed is kept from call to call: in what batch a row stands changes its last digits, and a
    resumed run must find the same ones.

    Args:
        model: the task model.
        form: of the VQA accuracy.
    """

    def __init__(self, model: TaskModel, form: AccuracyForm = "official") -> None:
        self.model = model
        self.form: AccuracyForm = form
        self._worth: dict[tuple[str, str], tuple[float, float, float]] = {}

    def __call__(self, queries: Sequence[Query], demos: Sequence[Sequence[Example]]) -> list[Measured]:
        """One entry a row.

        Args:
            queries: one a row; the same may stand in several.
            demos: of each row, as they are shown.
        """
        keys = [
            (query.id, tuple(example.id for example in chosen)) for query, chosen in zip(queries, demos, strict=True)
        ]
        first = {key: row for row, key in reversed(list(enumerate(keys)))}
        rows = sorted(first.values())
        found = self._measure([queries[row] for row in rows], [demos[row] for row in rows])
        by_key = {keys[row]: each for row, each in zip(rows, found, strict=True)}
        return [by_key[key] for key in keys]

    def _measure(self, queries: Sequence[Query], demos: Sequence[Sequence[Example]]) -> list[Measured]:
        each = list({query.id: query for query in queries}.values())
        scores = self.model.score(each, [()] * len(each), [(query.answer,) for query in each])
        alone = {query.id: math.exp(values[0]) for query, values in zip(each, scores, strict=True)}
        asked = [_answers(query) for query in queries]
        scores = self.model.score(queries, demos, asked)
        best = [answers[values.index(max(values))] for answers, values in zip(asked, scores, strict=True)]
        written = [row for row, query in enumerate(queries) if not query.choices]
        if written:
            texts = self.model.generate([queries[row] for row in written], [demos[row] for row in written])
            for row, text in zip(written, texts, strict=True):
                best[row] = text
        rows = zip(queries, asked, scores, best, strict=True)
        return [self._of(query, answers, values, said, alone[query.id]) for query, answers, values, said in rows]

    def _of(
        self, query: Query, answers: Sequence[str], scores: Sequence[float], prediction: str, alone: float
    ) -> Measured:
        chances = [math.exp(score) for score in scores]
        probability = chances[answers.index(query.answer)]
        info = probability - alone
        correct, accuracy, near = self._judged(query, prediction)
        expected = math.fsum(
            chance * self._judged(query, answer)[1] for answer, chance in zip(answers, chances, strict=True)
        )
        return Measured(prediction, correct, accuracy, info, expected, probability, quality=info, relevance=near)

    def _judged(self, query: Query, answer: str) -> tuple[float, float, float]:
        """Whether an answer is correct, its accuracy and its relevance; few answers come again and again."""
        key = (query.id, answer)
        if key not in self._worth:
            correct = float(normalise(answer) == normalise(query.answer))
            self._worth[key] = (
                correct,
                vqa_accuracy(answer, query.answers, self.form),
                relevance(answer, query.answers),
            )
        return self._worth[key]


def _answers(query: Query) -> tuple[str, ...]:
    """The answers whose probability is asked for: the choices, or the annotators' different answers."""
    return query.choices or tuple(dict.fromkeys(query.answers))
