"""Queries and pools by hand, and a task model of a few lines that is real: it answers what most of its demonstrations
answer.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence

import numpy as np

from groupwise_selection.example import Example, Query


def unit(*values: float) -> np.ndarray:
    vector = np.array(values, dtype=np.float32)
    return vector / np.linalg.norm(vector)


def example(name: str, answer: str = "yes", *vector: float, **more: object) -> Example:
    return Example(name, f"{name}?", answer, unit(*(vector or (1.0, 0.0))), **more)  # type: ignore[arg-type]


def query(
    name: str,
    pool: Sequence[Example],
    answers: Sequence[str] = ("yes",) * 8 + ("no",) * 2,
    *vector: float,
    **more: object,
) -> Query:
    return Query(name, f"{name}?", tuple(answers), unit(*(vector or (1.0, 0.0))), tuple(pool), **more)  # type: ignore[arg-type]


class Majority:
    """`P(a) = (1 + demonstrations that answer a) / (2 + demonstrations)`; of equals, it says the last one shown,
    without any "no".
    """

    def __init__(self) -> None:
        self.asked: list[tuple[str, tuple[str, ...]]] = []

    def score(
        self, queries: Sequence[Query], demos: Sequence[Sequence[Example]], answers: Sequence[Sequence[str]]
    ) -> list[list[float]]:
        self.asked += [(each.id, tuple(shown.id for shown in own)) for each, own in zip(queries, demos, strict=True)]
        return [
            [math.log((1 + sum(each.answer == answer for each in shown)) / (2 + len(shown))) for answer in asked]
            for shown, asked in zip(demos, answers, strict=True)
        ]

    def generate(self, queries: Sequence[Query], demos: Sequence[Sequence[Example]]) -> list[str]:
        return [
            Counter(each.answer for each in reversed(shown)).most_common(1)[0][0] if shown else "no" for shown in demos
        ]

    def fingerprint(self) -> str:
        return "majority"
