"""The records of selection: what may be shown (examples), and what is asked (queries with their pools)."""

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
        id: its name, unique among all examples.
        question: the text.
        answer: the text of its answer.
        embedding: fp32 `[D]`, of length 1.
        image: what the task model reads beside the text: a `uint8` array `[H, W]` or `[H, W, 3]`, or the path of a
            file.
        clusters: what it shares with others (`image`, `rule`): name -> key.

    Example:
        >>> import numpy as np
        >>> Example("a", "2 + 2?", "4", np.ones(1, np.float32)).answer
        '4'
    """

    id: str
    question: str
    answer: str
    embedding: np.ndarray
    image: Any = None
    clusters: Mapping[str, str] = field(default_factory=dict)


@final
@dataclass(frozen=True, eq=False)
class Query:
    """A question to be answered with the help of demonstrations out of its own pool.

    Args:
        id: its name, unique among all queries.
        question: the text.
        answers: what the annotators said, one text each.
        embedding: fp32 `[D]`, of length 1.
        pool: the examples that may be shown for it.
        image: as an example's.
        choices: the closed set of answers, where there is one; otherwise the task model writes its answer.
        clusters: what it shares with others, for intervals: name -> key.

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
        """What most annotators said; of equally many, what was said first."""
        return Counter(self.answers).most_common(1)[0][0]

    @cached_property
    def content(self) -> str:
        """A hash of what is asked, answered and chosen from, by which the same query is known under another name."""
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
    """What a source holds.

    Args:
        train: queries trained on.
        validation: queries for choosing between models and settings; neither trained on nor reported as the result.
        held_out: queries that the result is reported on.
        remarks: what was left out, in sentences.
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
        """Whether a query that the result is reported on is trained on too."""
        trained, evaluated = (frozenset(query.content for query in part) for part in (self.train, self.held_out))
        return EvaluatedOn.among(trained, evaluated)
