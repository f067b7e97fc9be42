"""Mathematical answers by the real library, in this process and in one of its own."""

from __future__ import annotations

from groupwise.reward import Extract, MathVerify, NumericAnswer, score

TEXTS = [r"So $x = \frac{2}{4}$.", r"\boxed{0.5}", "3", "no answer"]


def test_equal_as_mathematics() -> None:
    assert MathVerify()([""] * 4, TEXTS, answer=["1/2", r"\frac{1}{2}", r"$\frac{6}{2}$", "3"]) == [1.0, 1.0, 1.0, 0.0]


def test_answers_without_dollar_signs_that_need_them() -> None:
    assert MathVerify()([""] * 2, ["$(1, 2)$", "$(2, 1)$"], answer=["(1, 2)"] * 2) == [1.0, 0.0]


def test_runs_in_a_process_and_counts_what_it_cannot_read() -> None:
    table = score(
        {"math": MathVerify()}, ["?"] * 3, ["$0.5$", "$0.4$", "1"], {"answer": ["1/2", "1/2", "no mathematics here"]}
    )
    assert table.values["math"] == [1.0, 0.0, None]
    assert [(event.name, event.member) for event in table.events] == [("gold_unparsable", 2)]


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
