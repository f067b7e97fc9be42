"""Numbers in texts, and how near is near enough."""

from __future__ import annotations

from fractions import Fraction

import pytest

from groupwise.reward import Extract, NumericAnswer
from groupwise.reward.texts.number import last_number


@pytest.mark.parametrize(
    ("text", "number"),
    [
        ("72", 72),
        ("= -3.5 m", Fraction(-7, 2)),
        ("1,234,567 people", 1234567),
        ("a list: 1,2345", 2345),
        ("x=-4", -4),
        ("7-3", 3),
        ("7 - 3", 3),
        ("(2)-3", 3),
        ("3/4", Fraction(3, 4)),
        (".5", Fraction(1, 2)),
        ("2e3", 2000),
        ("The answer is 42.", 42),
        ("H2O", None),
        ("1/0", None),
        ("1e999999999", None),
        ("", None),
    ],
)
def test_reads_the_last_number(text: str, number: Fraction | int | None) -> None:
    assert last_number(text) == number


def test_large_integers_are_compared_exactly() -> None:
    assert NumericAnswer()(
        [""] * 2, ["100000000000000000001", "100000000000000000000"], answer=["100000000000000000000"] * 2
    ) == [0.0, 1.0]


def test_tolerances_are_the_larger_of_absolute_and_relative() -> None:
    reward = NumericAnswer(absolute_tolerance=0.5, relative_tolerance=0.01)
    assert reward([""] * 4, ["10.5", "10.6", "202", "203"], answer=[10, 10, 200, 200]) == [1.0, 0.0, 1.0, 0.0]


def test_expected_numbers_may_be_worked_answers() -> None:
    assert NumericAnswer(extract=Extract(after="####"))(
        [""] * 2, ["3 + 4\n#### 7", "7"], answer=["3 + 4 = 7\n#### 7"] * 2
    ) == [1.0, 0.0]


def test_data_without_a_number_is_an_error_and_not_a_wrong_answer() -> None:
    with pytest.raises(ValueError, match="'blue', in which there is no number"):
        NumericAnswer()([""], ["1"], answer=["blue"])
