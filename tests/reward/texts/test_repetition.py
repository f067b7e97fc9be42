"""Repeated n-grams."""

from __future__ import annotations

import pytest

from groupwise.reward import Repetition


def test_share_of_repeated_trigrams() -> None:
    # "a b c a b c": four trigrams, abc bca cab abc, three different: -(1 - 3/4).
    assert Repetition()([""] * 3, ["a b c a b c", "a b c d", "A B C a b c"]) == pytest.approx([-0.25, 0.0, -0.25])


def test_a_loop_costs_nearly_the_whole_penalty() -> None:
    assert Repetition(size=1, penalty=2.0)([""], ["no " * 100]) == pytest.approx([-1.98])


def test_shorter_than_one_gram_is_free() -> None:
    assert Repetition()([""] * 2, ["", "a a"]) == [0.0, 0.0]


def test_characters() -> None:
    assert Repetition(size=1, unit="characters")([""], ["好好 学"]) == pytest.approx([-1 / 3])
