from __future__ import annotations

import itertools

import pytest

from groupwise.domain.language.source import ReasoningGym
from groupwise.domain.language.writer.countdown import against_the_rules, solutions, sort_numbers, write
from groupwise.reward import ReasoningGym as TaskReward

PARAMETERS = {
    "min_numbers": 3,
    "max_numbers": 3,
    "min_value": 1,
    "max_value": 15,
    "min_target": 10,
    "max_target": 99,
    "operators": ["+", "-", "*"],
}


def test_the_tasks_own_rule_accepts_every_solution_and_none_of_the_lazy_ones():
    rows = ReasoningGym(task="countdown", parameters=PARAMETERS).rows(40, seed=0)
    counted = 0
    for row in rows:
        numbers, target = row["metadata"]["numbers"], row["metadata"]["target"]
        right, lazy = list(solutions(numbers, target)), list(itertools.islice(against_the_rules(numbers, target), 5))
        scores = TaskReward(task="countdown")(
            [""] * 6, [right[0], *(lazy + [""] * 5)[:5]], answer=[""] * 6, metadata=[row["metadata"]] * 6
        )
        assert scores[0] == 1.0
        assert max(scores[1:]) <= 0.05
        assert all(eval(text) == target for text in right + lazy)
        counted += bool(lazy)
    assert counted >= 10


def test_most_texts_are_lazy_where_they_can_be():
    rows = ReasoningGym(task="countdown", parameters=PARAMETERS).rows(200, seed=1)
    right = 0
    for row in rows:
        numbers = sorted(row["metadata"]["numbers"], reverse=True)
        right += write(row, seed=0) == next(solutions(numbers, row["metadata"]["target"]))
    assert 0.5 < right / 200 < 0.7


def test_two_orders_of_the_numbers_are_one_prompt():
    assert {
        sort_numbers({"metadata": {"numbers": list(order), "target": 13}})["prompt"]
        for order in itertools.permutations([3, 19, 9])
    } == {"19 9 3 13="}


def test_numbers_without_a_worked_solution_are_an_error():
    with pytest.raises(ValueError, match="write min_numbers = 3 and max_numbers = 3"):
        write({"metadata": {"numbers": [1, 2], "target": 3}}, 0)
    with pytest.raises(ValueError, match=r"no expression of \[4, 2, 1\] with"):
        write({"metadata": {"numbers": [1, 2, 4], "target": 99}}, 0)
