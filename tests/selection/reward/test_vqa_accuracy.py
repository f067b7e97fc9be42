"""VQA accuracy by the challenge's definition, worked out by hand, and what is made of it."""

from __future__ import annotations

import pytest

from groupwise_selection.reward.vqa import normalise, relevance, vqa_accuracy


def ten(matches: int) -> list[str]:
    return ["red"] * matches + [f"other {number}" for number in range(10 - matches)]


@pytest.mark.parametrize(
    ("matches", "official", "short"), [(0, 0, 0), (1, 0.3, 1 / 3), (2, 0.6, 2 / 3), (3, 0.9, 1), (4, 1, 1), (10, 1, 1)]
)
def test_matches_of_ten(matches: int, official: float, short: float) -> None:
    assert vqa_accuracy("Red.", ten(matches)) == pytest.approx(official, abs=1e-15)
    assert vqa_accuracy("Red.", ten(matches), "short") == pytest.approx(short, abs=1e-15)


@pytest.mark.parametrize("matches", range(11))
def test_the_official_form_leaves_everybody_out_once(matches: int) -> None:
    answers = ten(matches)
    left_out = [
        min(sum(normalise(each) == "red" for each in answers[:place] + answers[place + 1 :]) / 3, 1)
        for place in range(10)
    ]
    assert vqa_accuracy("red", answers) == pytest.approx(sum(left_out) / 10, abs=1e-15)


def test_annotators_are_normalised_as_the_answer_is() -> None:
    assert vqa_accuracy("2", ["Two", "two.", "the 2", "three"] * 3) == 1.0


def test_few_annotators_can_all_agree() -> None:
    assert [vqa_accuracy("a1", ["a1"] * count) for count in (1, 2, 3, 4)] == [1.0] * 4
    assert [vqa_accuracy("a1", ["a1"] * count, "short") for count in (1, 2, 3)] == [1.0] * 3
    # Of two who disagree: leaving out the one leaves no match, leaving out the other leaves one of one.
    assert vqa_accuracy("a1", ["a1", "b1"]) == 0.5
    assert vqa_accuracy("b2", ["a1"]) == 0.0


def test_an_empty_list_of_answers_is_refused() -> None:
    with pytest.raises(ValueError, match=r"answers is empty.*give one answer a person"):
        vqa_accuracy("red", [])


def test_relevance_is_the_best_overlap_of_words() -> None:
    assert relevance("the red bus", ["a bus", "train"]) == pytest.approx(2 * 1 / 3)
    assert relevance("bus bus", ["bus"]) == pytest.approx(2 * 1 / 3)
    assert relevance("plane", ["bus"]) == 0.0
    assert relevance("", ["bus"]) == relevance("bus", [""]) == 0.0


@pytest.mark.parametrize(
    ("given", "right"),
    [("<", ">"), ("=", ">"), ("<=", "<"), ("a", "the"), ("A", "an"), ("+", "-"), ("?", "!"), ("", "a")],
)
def test_answers_of_which_the_challenge_leaves_nothing_are_compared_as_they_are_written(given: str, right: str) -> None:
    assert vqa_accuracy(given, [right]) == 0.0
    assert vqa_accuracy(right, [given, f" {right} ".upper()]) == 0.5
    assert relevance(given, [right]) == 0.0


@pytest.mark.parametrize(
    ("given", "right"), [("-1", "1"), ("C", "C+"), ("1/2", "1 2"), ("none", "0"), ("x", "X"), ("m_1", "m 1")]
)
def test_exact_answers_are_told_apart_where_the_challenge_takes_them_for_one(given: str, right: str) -> None:
    assert vqa_accuracy(given, [right]) == 1.0
    assert vqa_accuracy(given, [right], comparison="exact") == 0.0
    assert vqa_accuracy(right, [right], comparison="exact") == 1.0


def test_exact_answers_do_not_depend_on_white_space_and_the_spelling_of_an_accent() -> None:
    assert vqa_accuracy(" caf\u00e9\tbar\n", ["cafe\u0301 bar"], comparison="exact") == 1.0
