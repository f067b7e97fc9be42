from __future__ import annotations

import pytest
from pydantic import ValidationError

from groupwise.domain.language.source.sorting import Sorting


def test_answers_are_sorted_and_wrong_demonstrations_are_reversed():
    source = Sorting(wrong_share=1.0)
    for row in source.rows(20, seed=0):
        digits = row["prompt"].removeprefix("sort ").removesuffix(" ?").split()
        assert row["answer"].split() == sorted(digits)
        assert source.demonstration(row, seed=0) == [" ".join(sorted(digits, reverse=True))]
        assert Sorting(wrong_share=0.0).demonstration(row, seed=0) == [row["answer"]]


def test_lengths_in_the_wrong_order_are_refused():
    with pytest.raises(ValidationError, match="min_length = 5 is above max_length = 3"):
        Sorting(min_length=5, max_length=3)
