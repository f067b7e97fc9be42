"""Exact answers: what counts as the same text."""

from __future__ import annotations

from groupwise.reward import ExactAnswer, Extract


def test_case_and_spaces_do_not_matter_and_several_answers_may_be_right() -> None:
    texts = [" New\n York ", "nyc", "Boston", ""]
    assert ExactAnswer()([""] * 4, texts, answer=[["New York", "NYC"]] * 4) == [1.0, 1.0, 0.0, 0.0]


def test_case_matters_when_asked() -> None:
    assert ExactAnswer(ignore_case=False, wrong=-1.0)([""] * 2, ["Ab", "ab"], answer=["ab", "ab"]) == [-1.0, 1.0]


def test_an_answer_that_is_not_found_is_wrong_also_where_the_empty_text_is_expected() -> None:
    assert ExactAnswer(extract=Extract(tag="a"))([""] * 2, ["", "<a></a>"], answer=["", ""]) == [0.0, 1.0]


def test_the_column_can_have_another_name_and_numbers_are_texts() -> None:
    reward = ExactAnswer(column="solution")
    assert reward.needs == ("solution",)
    assert reward([""], [[{"role": "assistant", "content": "12"}]], solution=[12], answer=["x"]) == [1.0]


def test_a_row_without_an_answer_has_no_reward_even_for_the_word_none() -> None:
    assert ExactAnswer()([""] * 3, ["None", "x", "4"], answer=[None, None, 4]) == [None, None, 1.0]
