"""The reader of numbers: as people write them, and nothing where a part would be taken for the whole."""

from __future__ import annotations

from fractions import Fraction

from groupwise.reward import ExactAnswer, Extract, KnightsAndKnaves, MathVerify, NumericAnswer, Rewards, score
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
    "1,234,567 people": 1234567,
    "a list: 1,2345": 2345,
    # The last number of a text.
    "= -3.5 m": Fraction(-7, 2),
    "x=-4": -4,
    "7-3": 3,
    "7 - 3": 3,
    "(2)-3": 3,
    "3/4": Fraction(3, 4),
    ".5": Fraction(1, 2),
    "2e3": 2000,
    "The answer is 42.": 42,
}
NOT_READ = ["H2O", "x^2", "2^x", "\\sqrt{2}", "2\\pi", "\\frac{1}{\\sqrt{2}}", "\\frac{x}{2}", "x = ±5", "12/25/2024"]
NOT_READ += ["9^{9^{9}}", "9^999999999", "0.\\overline{3}", "1/0", "1e999999999", ""]


def test_reads_numbers_as_people_write_them_and_no_part_of_what_is_not_read() -> None:
    assert {text: last_number(text) for text in READ} == READ
    assert {text: last_number(text) for text in NOT_READ} == dict.fromkeys(NOT_READ)


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


# Numbers in texts, and how near is near enough.


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
    assert ("gold_unparsable", "math", 1) in {(event.name, event.reward, event.member) for event in table.events}
    with Rewards(rewards) as opened:
        said = opened.remarks_of_rows(rows)
    assert [sentence.partition(" rows")[0] for sentence in said] == [
        "reward 'number': 2 of 4",
        "reward 'math': 2 of 4",
        "reward 'puzzle': 2 of 4",
    ]
    assert "holds 'no number', in which there is no number" in said[0]


# Mathematical answers by the real library, in this process and in one of its own.


TEXTS = [r"So $x = \frac{2}{4}$.", r"\boxed{0.5}", "3", "no answer"]


def test_equal_as_mathematics() -> None:
    assert MathVerify()([""] * 4, TEXTS, answer=["1/2", r"\frac{1}{2}", r"$\frac{6}{2}$", "3"]) == [1.0, 1.0, 1.0, 0.0]


def test_answers_without_dollar_signs_that_need_them() -> None:
    assert MathVerify()([""] * 2, ["$(1, 2)$", "$(2, 1)$"], answer=["(1, 2)"] * 2) == [1.0, 0.0]


def test_bare_numbers_are_read_wherever_they_stand() -> None:
    texts = [
        "<think>6 * 7</think><answer>1/2</answer>",
        "####42",
        "Answer:42",
        "答案是42",
        "costs -$42",
        "\\boxed{10 000}",
    ]
    assert MathVerify()([""] * 6, texts, answer=["0.5", "42", "42", "42", "-42", "10,000"]) == [1.0] * 6


def test_the_last_box_counts() -> None:
    texts = [
        r"first \boxed{2}, finally \boxed{x^{2}}",
        r"first \boxed{2}, finally \boxed{4",
        r"\boxed{4}, not \boxed{2}",
    ]
    assert MathVerify()([""] * 3, texts, answer=["x^2", "4", "4"]) == [1.0, 0.0, 0.0]


def test_thoughts_hold_no_answer_whether_closed_or_cut_off() -> None:
    texts = [r"<think>\boxed{41}?</think> So \boxed{42}", "<think>42?</think>", "<think>is it 42"]
    for reward in (MathVerify(), NumericAnswer()):
        assert reward([""] * 3, texts, answer=["42"] * 3) == [1.0, 0.0, 0.0]


def test_the_answer_has_a_place() -> None:
    reward = MathVerify(extract=Extract(tag="answer"))
    assert reward([""] * 2, ["<answer>$x+1$</answer> or 5", "5"], answer=["x+1", "5"]) == [1.0, 0.0]
