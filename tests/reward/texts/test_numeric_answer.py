"""Numbers in texts, and how near is near enough."""

from __future__ import annotations

from fractions import Fraction

import pytest

from groupwise.reward import Extract, KnightsAndKnaves, MathVerify, NumericAnswer, Rewards, score
from groupwise.reward.texts.answers import last_number


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


def test_data_without_a_number_cost_their_own_members_and_are_said_before() -> None:
    rewards = {"number": NumericAnswer(), "math": MathVerify(), "puzzle": KnightsAndKnaves()}
    rows = [{"answer": "1"}, {"answer": "no number"}, {"answer": None}, {"answer": "Al is a knight"}]
    answers = [row["answer"] for row in rows]
    table = score(rewards, [""] * 4, ["1"] * 4, {"answer": answers})
    assert table.values["number"] == [1.0, None, None, None]
    assert table.values["puzzle"] == [None, None, None, -3.0]
    assert table.values["math"][:3] == [1.0, None, None]
    with Rewards(rewards) as opened:
        said = opened.remarks_of_rows(rows)
    assert [sentence.partition(" rows")[0] for sentence in said] == [
        "reward 'number': 2 of 4",
        "reward 'math': 2 of 4",
        "reward 'puzzle': 2 of 4",
    ]
    assert "holds 'no number', in which there is no number" in said[0]
