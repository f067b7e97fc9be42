"""Where an answer stands."""

from __future__ import annotations

import pytest

from groupwise.config import ConfigError, validate
from groupwise.reward import Extract


@pytest.mark.parametrize(
    ("extract", "text", "answer"),
    [
        (Extract(), "  all of it \n", "all of it"),
        (Extract(tag="answer"), "<answer>1</answer><answer>2\n3</answer>", "2\n3"),
        (Extract(tag="answer"), "<answer>1<answer>2</answer>", "2"),
        (Extract(tag="answer"), "<answer>1", None),
        (Extract(after="Answer:"), "Answer: 1\nAnswer: 2 \nthank you", "2"),
        (Extract(after="Answer:"), "Answer:", ""),
        (Extract(after="Answer:"), "2", None),
        (Extract(pattern=r"\d+"), "1 and 22", "22"),
        (Extract(pattern=r"x=(\d+)|none"), "x=1 none", ""),
        (Extract(pattern=r"\d+"), "one", None),
    ],
)
def test_finds_the_last_place(extract: Extract, text: str, answer: str | None) -> None:
    assert extract(text) == answer


def test_two_ways_at_once_are_refused() -> None:
    with pytest.raises(ConfigError, match="tag and pattern are different ways"):
        validate(Extract, {"tag": "a", "pattern": "b"})


def test_a_pattern_that_does_not_compile_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"'\(' is no regular expression"):
        validate(Extract, {"pattern": "("})
