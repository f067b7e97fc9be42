"""The measurement of an ordered choice of demonstrations: the task model's answer after it, and the probabilities of
the right answers.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, final

import numpy as np
import torch
from torch import Tensor

from groupwise.config import ConfigError
from groupwise_selection.embedder import answer_features
from groupwise_selection.example import Example, Query
from groupwise_selection.policy.network import Pools
from groupwise_selection.reward.vqa import AccuracyForm, Comparison, comparable, relevance, vqa_accuracy
from groupwise_selection.task_model.base import TaskModel

FIELDS = ("correct", "accuracy", "info", "expected", "probability", "quality", "relevance")
"""The measured fields of a choice; rewards read each as a column of its name."""

Order = Literal["first_pick_first", "first_pick_last"]


@final
@dataclass(frozen=True)
class Measurement:
    """The measured fields of one query after some demonstrations.

    Args:
        prediction: answer of the task model.
        correct: 1 where the prediction is the answer of most annotators, otherwise 0.
        accuracy: VQA accuracy of the prediction, in [0, 1].
        info: `P(y | query, demonstrations) - P(y | query)` of the answer `y` that most annotators gave.
        expected: `sum_a P(a | query, demonstrations) accuracy(a)` over the annotators' answers.
        probability: `P(y | query, demonstrations)`.
        quality: score of the choice in a search: `info`.
        relevance: overlap of the prediction with the annotators' answers in words, in [0, 1].
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
    """Puts picked examples into the order in which the task model reads them; the query comes last.

    Args:
        picked: examples in the order of picking.
        order: place of the first pick: at the beginning, or next to the query.

    Example:
        >>> in_order("ca", "first_pick_last")
        ('a', 'c')
    """
    return tuple(picked) if order == "first_pick_first" else tuple(picked)[::-1]


def picked_examples(pool: Sequence[Example], picks: Sequence[int], order: Order) -> tuple[Example, ...]:
    """Looks up the picked examples of a pool, in the order in which the task model reads them.

    Args:
        pool: examples of the query's pool.
        picks: places in the pool, in the order of picking.
        order: see `in_order`.

    Example:
        >>> picked_examples("abc", [2, 0], "first_pick_last")
        ('a', 'c')
    """
    return in_order([pool[place] for place in picks], order)


@final
class Measures:
    """Measures choices with a task model; equal choices are measured once a call.

    No result is kept from call to call: the batch around a row changes its last digits, and a resumed run must compute
    the same digits.

    Args:
        model: the task model.
        form: form of the VQA accuracy.
        comparison: which answers count as the same.
    """

    def __init__(self, model: TaskModel, form: AccuracyForm = "official", comparison: Comparison = "exact") -> None:
        self.model = model
        self.comparison: Comparison = comparison
        self.form: AccuracyForm = form
        self._judgements: dict[tuple[str, str], tuple[float, float, float]] = {}

    def __call__(self, queries: Sequence[Query], demos: Sequence[Sequence[Example]]) -> list[Measurement]:
        """Measures one choice a row.

        Args:
            queries: one a row; a query may appear in several rows.
            demos: demonstrations of each row, in the order of the prompt.
        """
        keys = [
            (query.id, tuple(example.id for example in chosen)) for query, chosen in zip(queries, demos, strict=True)
        ]
        first_rows = {key: row for row, key in reversed(list(enumerate(keys)))}
        rows = sorted(first_rows.values())
        measurements = self._measure([queries[row] for row in rows], [demos[row] for row in rows])
        by_key = {keys[row]: measurement for row, measurement in zip(rows, measurements, strict=True)}
        return [by_key[key] for key in keys]

    def _measure(self, queries: Sequence[Query], demos: Sequence[Sequence[Example]]) -> list[Measurement]:
        distinct_queries = list({query.id: query for query in queries}.values())
        scores = self._scores(
            distinct_queries, [()] * len(distinct_queries), [(query.answer,) for query in distinct_queries]
        )
        zero_shot_probability = {
            query.id: math.exp(values[0]) for query, values in zip(distinct_queries, scores, strict=True)
        }
        answer_lists = [_answers(query) for query in queries]
        scores = self._scores(queries, demos, answer_lists)
        predictions = [answers[values.index(max(values))] for answers, values in zip(answer_lists, scores, strict=True)]
        generated_rows = [row for row, query in enumerate(queries) if not query.choices]
        if generated_rows:
            texts = self.model.generate(
                [queries[row] for row in generated_rows], [demos[row] for row in generated_rows]
            )
            for row, text in zip(generated_rows, texts, strict=True):
                predictions[row] = text
        rows = zip(queries, answer_lists, scores, predictions, strict=True)
        return [
            self._of(query, answers, values, prediction, zero_shot_probability[query.id])
            for query, answers, values, prediction in rows
        ]

    def _scores(
        self, queries: Sequence[Query], demos: Sequence[Sequence[Example]], answers: Sequence[Sequence[str]]
    ) -> list[list[float]]:
        scores = self.model.score(queries, demos, answers)
        for query, values in zip(queries, scores, strict=True):
            if not all(map(math.isfinite, values)):
                raise ConfigError(
                    f"task_model: its log-probabilities of the answers to query {query.id!r} are {values}; its weights"
                    ' are damaged, or overflow in half precision (task_model.dtype = "float32")'
                )
        return scores

    def _of(
        self,
        query: Query,
        answers: Sequence[str],
        scores: Sequence[float],
        prediction: str,
        zero_shot_probability: float,
    ) -> Measurement:
        probabilities = [math.exp(score) for score in scores]
        probability = probabilities[answers.index(query.answer)]
        info = probability - zero_shot_probability
        correct, accuracy, word_relevance = self._judge(query, prediction)
        expected = math.fsum(
            answer_probability * self._judge(query, answer)[1]
            for answer, answer_probability in zip(answers, probabilities, strict=True)
        )
        return Measurement(
            prediction, correct, accuracy, info, expected, probability, quality=info, relevance=word_relevance
        )

    def _judge(self, query: Query, answer: str) -> tuple[float, float, float]:
        """Computes the correctness, accuracy and relevance of an answer, once each: few answers come again and
        again.
        """
        key = (query.id, answer)
        if key not in self._judgements:
            correct = float(comparable(answer, self.comparison) == comparable(query.answer, self.comparison))
            self._judgements[key] = (
                correct,
                vqa_accuracy(answer, query.answers, self.form, self.comparison),
                relevance(answer, query.answers, self.comparison),
            )
        return self._judgements[key]


def _answers(query: Query) -> tuple[str, ...]:
    """Lists the answers whose probabilities are measured: the choices, or the annotators' distinct answers."""
    return query.choices or tuple(dict.fromkeys(query.answers))


@final
class QueryTable:
    """All queries of a run, by number; pools are padded to the largest.

    Args:
        queries: queries with pools of any sizes.
        answer_size: number of hashed features of an answer.
        device, dtype: place and type of the tensors.

    Example:
        >>> import numpy as np
        >>> example = Example("e", "?", "a", np.ones(1, np.float32))
        >>> table = QueryTable(
        ...     [Query("q", "?", ("a",), np.ones(1, np.float32), (example,))], 4, torch.device("cpu"), torch.float32
        ... )
        >>> table.pools(torch.tensor([0])).pool.shape
        torch.Size([1, 1, 1])
    """

    def __init__(self, queries: Sequence[Query], answer_size: int, device: torch.device, dtype: torch.dtype) -> None:
        self.queries = list(queries)
        self.number = {query.id: place for place, query in enumerate(self.queries)}
        examples: dict[str, Example] = {example.id: example for query in self.queries for example in query.pool}
        place = {name: index for index, name in enumerate(examples)}
        self.width = max(len(query.pool) for query in self.queries)
        members = np.zeros((len(self.queries), self.width), dtype=np.int64)
        valid = np.zeros((len(self.queries), self.width), dtype=bool)
        for row, query in enumerate(self.queries):
            members[row, : len(query.pool)] = [place[example.id] for example in query.pool]
            valid[row, : len(query.pool)] = True
        features = {
            answer: answer_features(answer, answer_size)
            for answer in dict.fromkeys(example.answer for example in examples.values())
        }

        def tensor(values: np.ndarray) -> Tensor:
            return torch.from_numpy(values).to(device=device, dtype=dtype)

        self._members, self._valid = torch.from_numpy(members).to(device), torch.from_numpy(valid).to(device)
        self._query = tensor(np.stack([query.embedding for query in self.queries]))
        self._example = tensor(np.stack([example.embedding for example in examples.values()]))
        self._answer = tensor(np.stack([features[example.answer] for example in examples.values()]))

    def pools(self, numbers: Tensor) -> Pools:
        """Looks up the pools of some queries.

        Args:
            numbers: `[P]` places of the queries in the table.
        """
        members = self._members[numbers]
        return Pools(self._query[numbers], self._example[members], self._answer[members], self._valid[numbers])
