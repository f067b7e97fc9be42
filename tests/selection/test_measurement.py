"""What a choice is worth, by hand."""

from __future__ import annotations

import math

import pytest
from tests.selection.handmade import Majority, example, query

from groupwise.config import ConfigError
from groupwise_selection.measurement import Measures, in_order, picked_examples


def test_measured_by_hand() -> None:
    pool = [example("a", "yes"), example("b", "yes"), example("c", "no")]
    asked = query("q", pool, choices=("yes", "no"))
    model = Majority()
    measures = Measures(model)
    right, wrong = measures([asked, asked], [pool[:2], pool[2:]])
    # P(yes) after two that say yes: 3/4; alone 1/2. Eight of ten say yes, two no: accuracies 1 and .6.
    assert (right.prediction, right.correct, right.accuracy) == ("yes", 1.0, 1.0)
    assert right.probability == pytest.approx(0.75)
    assert right.info == pytest.approx(0.25)
    assert right.quality == right.info
    assert right.expected == pytest.approx(0.75 * 1 + 0.25 * 0.6)
    assert (wrong.prediction, wrong.correct) == ("no", 0.0)
    assert wrong.accuracy == pytest.approx(0.6)
    assert wrong.info == pytest.approx(1 / 3 - 1 / 2)
    assert wrong.relevance == 1.0


def test_a_query_without_choices_is_answered_in_writing() -> None:
    asked = query("q", [example("a", "maybe")], answers=["yes"] * 9 + ["no"])
    (found,) = Measures(Majority())([asked], [asked.pool])
    assert found.prediction == "maybe"
    assert found.accuracy == 0.0
    assert found.probability == pytest.approx(1 / 3)


def test_an_answer_is_right_where_it_is_written_as_the_right_one() -> None:
    asked = query("q", [example("a", "-1")], answers=["1"])
    for comparison, right in (("exact", 0.0), ("vqa", 1.0)):
        (found,) = Measures(Majority(), comparison=comparison)([asked], [asked.pool])
        assert (found.prediction, found.correct, found.accuracy, found.relevance) == ("-1", right, right, right)


def test_equal_choices_are_measured_once() -> None:
    pool = [example("a"), example("b", "no")]
    one, other = query("q", pool, choices=("yes", "no")), query("r", pool, choices=("yes", "no"))
    model = Majority()
    measures = Measures(model)
    found = measures([one, other, one, one], [pool, pool, pool, pool[::-1]])
    assert found[0] == found[2]
    assert sorted(model.asked) == sorted(
        [("q", ()), ("r", ()), ("q", ("a", "b")), ("r", ("a", "b")), ("q", ("b", "a"))]
    )
    # A later call asks again: what a row gives depends in its last digits on the rows beside it, and a resumed run has
    # no earlier call.
    measures([one], [pool[:1]])
    assert model.asked[-2:] == [("q", ()), ("q", ("a",))]


def test_the_first_pick_stands_where_the_order_says() -> None:
    assert picked_examples([example("a"), example("b")], [1, 0], "first_pick_last")[-1].id == "b"
    assert picked_examples([example("a"), example("b")], [1, 0], "first_pick_first")[0].id == "b"
    assert in_order((), "first_pick_last") == ()


@pytest.mark.parametrize("value", [math.nan, -math.inf])
def test_a_task_model_that_gives_no_probability_is_named(value: float) -> None:
    asked = query("q", [example("a")], choices=("yes", "no"))
    model = Majority()
    score = model.score
    model.score = lambda *args: [[value] * len(row) for row in score(*args)]  # type: ignore[method-assign]
    with pytest.raises(ConfigError, match="task_model: its log-probabilities of the answers to query 'q' are"):
        Measures(model)([asked], [asked.pool])
