from __future__ import annotations

import itertools

from groupwise.domain.language.source.base import distinct


def test_repeats_are_skipped_and_an_exhausted_task_ends():
    rows = ({"prompt": str(number % 3)} for number in itertools.count())
    assert [row["prompt"] for row in distinct(rows, lambda row: row["prompt"], 5)] == ["0", "1", "2"]
    assert distinct(iter([{"prompt": "a"}, {"prompt": "b"}]), lambda row: row["prompt"], None) == [
        {"prompt": "a"},
        {"prompt": "b"},
    ]
