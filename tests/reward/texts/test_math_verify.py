"""Mathematical answers by the real library, in this process and in one of its own."""

from __future__ import annotations

from groupwise.reward import MathVerify, score

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
