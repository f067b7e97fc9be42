"""The reader of numbers: as people write them, and nothing where a part would be taken for the whole."""

from __future__ import annotations

from fractions import Fraction

import pytest

from groupwise.reward import ExactAnswer, Judge, MathVerify, NumericAnswer
from groupwise.reward.texts.answers import last_number, whole_number

READ = {
    # Scripts without spaces, names, codes and marks.
    "所以答案是42": 42,
    "答えは42です": 42,
    "คำตอบคือ42": 42,
    "Ответ42": 42,
    "第4２页": 42,
    "_42_": 42,
    "USD42": 42,
    "¥５００": 500,
    "Rs.500": 500,
    "GPT-4": 4,
    "25 cm^2": 25,
    "25 m²": 25,
    "x_{2} = 5": 5,
    # Signs.
    "x = \u22125": -5,
    "x = \u20135": -5,
    "x = \uff0d5": -5,
    "x = \ufe635": -5,
    "答案是\u22125": -5,
    "x = \u2212 5": -5,
    "\\boxed{- 5}": -5,
    "\u2212½": Fraction(-1, 2),
    "负5": -5,
    "equals minus 5": -5,
    "pages 5\u20137": 7,
    "7 minus 3": 3,
    "a list:\n- 5": 5,
    "it is -$5": -5,
    "it is $-5": -5,
    "\u2212€5": -5,
    "-\\$5": -5,
    "-US$5": -5,
    "USD-5": -5,
    "$3$-$5$": 5,
    # Fractions and powers.
    "1 / 2": Fraction(1, 2),
    "about \\frac{1}{2}": Fraction(1, 2),
    "-\\dfrac12": Fraction(-1, 2),
    "3 1/2": Fraction(7, 2),
    "3½": Fraction(7, 2),
    "3\\frac{1}{2}": Fraction(7, 2),
    "2.5×10^3": 2500,
    "2.5 \\times 10^{3}": 2500,
    "10⁻²": Fraction(1, 100),
    # Separators of thousands.
    "10 000": 10000,
    "10\u202f000": 10000,
    "10\u00a0000": 10000,
    "10\u2009000": 10000,
    "10\\,000": 10000,
    "10{,}000": 10000,
    "1\uff0c250": 1250,
    "10'000": 10000,
    "1.234,56": Fraction(123456, 100),
}
NOT_READ = [
    "H2O",
    "x^2",
    "2^x",
    "\\sqrt{2}",
    "2\\pi",
    "\\frac{1}{\\sqrt{2}}",
    "\\frac{x}{2}",
    "x = ±5",
    "12/25/2024",
    "9^{9^{9}}",
    "9^999999999",
    "0.\\overline{3}",
]


@pytest.mark.parametrize(("text", "number"), READ.items())
def test_reads_numbers_as_people_write_them(text: str, number: Fraction | int) -> None:
    assert last_number(text) == number


@pytest.mark.parametrize("text", NOT_READ)
def test_a_part_of_what_is_not_read_is_no_number(text: str) -> None:
    assert last_number(text) is None


def test_a_number_and_nothing_else() -> None:
    assert [whole_number(text) for text in ("\u2212 1\u202f000", "$5", "5 m", "4 or 5", "")] == [
        -1000,
        5,
        None,
        None,
        None,
    ]


def test_the_wrong_number_never_earns() -> None:
    texts, wrong = ["x = \u22125", "it is -$5", "\\frac{1}{2}", "10 000", "1\uff0c250"], ["5", "5", "2", "0", "250"]
    assert NumericAnswer()([""] * 5, texts, answer=wrong) == [0.0] * 5
    assert MathVerify()([""] * 5, texts, answer=wrong) == [0.0] * 5


def test_exact_answers_compare_numbers_as_numbers_and_texts_as_texts() -> None:
    texts, expected = (
        ["４２", "1,000.0", "\u22125", "\u22125", "1.10", "cafe\u0301"],
        ["42", 1000, -5, 5, "1.1", "café"],
    )
    assert ExactAnswer()([""] * 6, texts, answer=expected) == [1.0, 1.0, 1.0, 0.0, 0.0, 1.0]


@pytest.mark.parametrize(
    "verdict",
    ["Score：8", "Score: ８", "Score: `8`", "Score (0-10): 8", "**Score**: 8", "Score: [[8]]", "Score: 8/10."],
)
def test_a_judge_writes_numbers_as_people_do(verdict: str) -> None:
    assert Judge(address="http://127.0.0.1:9/v1", model="m")._number(verdict) == 0.8


def test_a_negative_score_is_not_taken_for_a_positive_one() -> None:
    noted = Judge(address="http://127.0.0.1:9/v1", model="m")._number("Score: \u22128")
    assert getattr(noted, "event", None) == "judge_unparsable"
