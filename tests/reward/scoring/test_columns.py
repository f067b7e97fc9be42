"""Which columns a reward needs and is given."""

from __future__ import annotations

import functools

from groupwise.reward import ExactAnswer
from groupwise.reward.scoring.table import arguments_for, needed_columns


def test_needs() -> None:
    assert needed_columns(lambda prompts, completions, a, b=1, *rest, c, **more: None) == ("a", "c")
    assert needed_columns(functools.partial(lambda completions, a, b: None, b=1)) == ("a",)
    assert needed_columns(ExactAnswer(column="gold")) == ("gold",)


def test_what_a_partial_holds_wins_over_a_column() -> None:
    function = functools.partial(lambda completions, **columns: columns, word="mine")
    assert function(**arguments_for(function, {"completions": [], "word": ["theirs"], "x": [1]})) == {
        "word": "mine",
        "x": [1],
    }
