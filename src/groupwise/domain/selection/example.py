"""The records of selection: examples, which may be shown, and queries with their pools, which are to be answered."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any, final

from groupwise.runs import EvaluatedOn

if TYPE_CHECKING:
    import numpy as np


@final
@dataclass(frozen=True, eq=False)
class Example:
    """A solved case that may be shown as a demonstration.

    Args:
        id: name, unique among all examples.
        question: text of the question.
        answer: text of the answer.
        embedding: fp32 `[D]`, of length 1.
        image: picture that the task model reads beside the text: a `uint8` array `[H, W]` or `[H, W, 3]`, or the path
            of a file.
        clusters: groups of examples and queries that share an image or a rule: name -> key.

    Example:
        >>> import numpy as np
        >>> Example("a", "2 + 2?", "4", np.ones(1, np.float32))
        Example(id='a', question='2 + 2?', answer='4')
    """

    id: str
    question: str
    answer: str
    embedding: np.ndarray = field(repr=False)
    image: Any = field(default=None, repr=False)
    clusters: Mapping[str, str] = field(default_factory=dict, repr=False)


@final
@dataclass(frozen=True, eq=False)
class Query:
    """A question to be answered with the help of demonstrations out of its own pool.

    Args:
        id: name, unique among all queries.
        question: text of the question.
        answers: answers of the annotators, one text each.
        embedding: fp32 `[D]`, of length 1.
        pool: the examples that may be shown for it.
        image: picture, as in `Example`.
        choices: the closed set of answers, where there is one; otherwise the task model writes its answer.
        clusters: groups of queries that share an image or a rule, for intervals: name -> key.

    Example:
        >>> import numpy as np
        >>> Query("q", "2 + 2?", ("4", "5", "4"), np.ones(1, np.float32), ()).answer
        '4'
    """

    id: str
    question: str
    answers: tuple[str, ...]
    embedding: np.ndarray
    pool: tuple[Example, ...]
    image: Any = None
    choices: tuple[str, ...] = ()
    clusters: Mapping[str, str] = field(default_factory=dict)

    @cached_property
    def answer(self) -> str:
        """The answer of most annotators; of equally frequent answers, the first."""
        return Counter(self.answers).most_common(1)[0][0]

    @cached_property
    def content(self) -> str:
        """A hash of the question, the answers, the image and the pool: equal for the same query under another id."""
        image = (
            self.image
            if self.image is None or isinstance(self.image, str)
            else (self.image.shape, self.image.tobytes())
        )
        pool = [(example.question, example.answer) for example in self.pool]
        return hashlib.blake2b(
            repr((self.question, self.answers, image, pool)).encode("utf-8", "surrogatepass"), digest_size=16
        ).hexdigest()


@final
@dataclass(frozen=True)
class Questions:
    """The queries of a source in their splits.

    Args:
        validation: queries for choosing between models and settings; they serve neither training nor the reported
            result.
        held_out: queries of the reported result.
        remarks: sentences on queries and examples that were left out.
        bank: the solved examples that all pools are the nearest of, where there is such a bank; empty where every query
            has a pool of its own.
    """

    train: Sequence[Query]
    validation: Sequence[Query]
    held_out: Sequence[Query]
    remarks: Sequence[str] = ()
    bank: Sequence[Example] = ()

    @property
    def evaluated_on(self) -> EvaluatedOn:
        """A statement on whether queries of the reported result are trained on too."""
        trained, evaluated = (frozenset(query.content for query in queries) for queries in (self.train, self.held_out))
        return EvaluatedOn.among(trained, evaluated)
