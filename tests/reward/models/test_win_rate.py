"""Pairwise preference inside a group, by hand."""

from __future__ import annotations

import pytest

import groupwise.reward.models.judge as room
from groupwise.reward import RewardError, WinRate, score


def use(monkeypatch: pytest.MonkeyPatch, judge: object) -> None:
    monkeypatch.setattr(room, "user_callable", lambda path, key, group: judge)


def test_the_share_of_the_own_group_that_is_beaten(monkeypatch: pytest.MonkeyPatch) -> None:
    use(monkeypatch, lambda prompt, first, second: 0.5 if first == second else float(first > second))
    prompts, values = ["a", "b", "a", "a", "b", "c"], ["1", "9", "3", "3", "8", "7"]
    # In group a: 1 loses twice, each 3 wins once and draws once. c has nobody to be compared with.
    assert score({"w": WinRate(function="m:f")}, prompts, values).values["w"] == [0.0, 1.0, 0.75, 0.75, 0.0, None]


def test_both_orders_take_the_judges_favourite_place_out(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []
    use(monkeypatch, lambda prompt, first, second: asked.append((first, second)) or 0.9)
    assert score({"w": WinRate(function="m:f")}, ["a"] * 2, ["x", "y"]).values["w"] == pytest.approx([0.9, 0.1])
    assert score({"w": WinRate(function="m:f", both_orders=True)}, ["a"] * 2, ["x", "y"]).values["w"] == pytest.approx(
        [0.5, 0.5]
    )
    assert asked == [("x", "y"), ("x", "y"), ("y", "x")]


@pytest.mark.parametrize("answer", [1.5, None, "yes", float("nan")])
def test_an_answer_that_is_no_probability_is_named(monkeypatch: pytest.MonkeyPatch, answer: object) -> None:
    use(monkeypatch, lambda prompt, first, second: answer)
    with pytest.raises(RewardError, match=r"return the probability that the first is better, 0 to 1"):
        score({"w": WinRate(function="m:f")}, ["a"] * 2, ["x", "y"])
