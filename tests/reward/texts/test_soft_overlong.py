"""DAPO's soft overlong punishment, equation 13 of arXiv 2503.14476, worked by hand."""

from __future__ import annotations

import pytest

from groupwise.config import ConfigError, validate
from groupwise.reward import RewardError, SoftOverlong, score


def test_three_stretches_with_the_papers_numbers() -> None:
    # L_max 20480, L_cache 4096: free up to 16384, then (16384 - L) / 4096, then -1.
    lengths = [0, 16384, 16385, 18432, 20480, 20481]
    expected = pytest.approx([0.0, 0.0, -1 / 4096, -0.5, -1.0, -1.0])
    assert SoftOverlong(max_length=20480)([""] * 6, [""] * 6, num_tokens=lengths) == expected
    assert SoftOverlong()([""] * 6, [""] * 6, num_tokens=lengths, max_new_tokens=[20480] * 6) == expected


def test_the_limit_is_that_of_the_run() -> None:
    columns = {"num_tokens": [8, 9, 10, 5], "max_new_tokens": [10, 10, 10, 5]}
    assert SoftOverlong()([""] * 4, [""] * 4, **columns) == pytest.approx([0.0, -0.5, -1.0, -1.0])


def test_token_ids_count_as_their_number() -> None:
    reward = SoftOverlong(max_length=4, cache_length=2, column="completion_ids")
    assert reward([""] * 2, ["x"] * 2, completion_ids=[[5, 6, 7], [5]]) == [-0.5, 0.0]


def test_words_only_when_asked() -> None:
    assert SoftOverlong(max_length=4, cache_length=2, column=None)([""], ["a b c"]) == [-0.5]
    with pytest.raises(
        RewardError, match="reward 'long' needs the column 'num_tokens', which the data lacks; columns: answer"
    ):
        score({"long": SoftOverlong(max_length=9)}, ["?"], ["a"], {"answer": [1]})


def test_a_cache_longer_than_the_limit_is_refused() -> None:
    with pytest.raises(ConfigError, match="cache_length = 5 is longer than max_length = 4"):
        validate(SoftOverlong, {"kind": "soft_overlong", "max_length": 4, "cache_length": 5})
