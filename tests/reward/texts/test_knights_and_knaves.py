"""Format and answer of Knights and Knaves, also on puzzles as reasoning-gym makes them."""

from __future__ import annotations

import pytest
import reasoning_gym

from groupwise.reward import KnightsAndKnaves
from groupwise.reward.base import Noted

GOLD = "Zoey is a knight, and Avery is a knave."


def wrapped(answer: str) -> str:
    return f"<think>hm</think>\n<answer>{answer}</answer>"


@pytest.mark.parametrize(
    ("text", "value"),
    [
        (wrapped("(1) Zoey is a knight\n(2) Avery is a knave"), 3.0),
        (wrapped("avery: Knave, zoey: KNIGHT"), 3.0),
        (wrapped("Zoey is a knave, and Avery is a knave."), -0.5),
        (wrapped("Zoey is a knight"), -1.0),
        (wrapped("Zoey is a knight/knave, and Avery is a knight/knave"), -1.0),
        (wrapped("Zoey is a knight. Zoey is a knave. Avery is a knave."), -1.0),
        (wrapped("Zoey is not a knight. Avery is a knave."), -1.0),
        (wrapped("Zoey is a knight, not a knave. Avery is a knave."), -1.0),
        (wrapped("Zoey is a knight. Zoey is a knight. Avery is a knave."), -1.0),
        (wrapped("Zoey is a knight, Avery is a knave, and Bob is a knight."), -1.0),
        (wrapped(""), -1.0),
        (GOLD, -3.0),
        ("<answer>" + GOLD + "</answer>", -3.0),
        (wrapped(GOLD) + wrapped(GOLD), -3.0),
    ],
)
def test_format_one_answer_two(text: str, value: float) -> None:
    assert KnightsAndKnaves()([""], [text], answer=[GOLD]) == [value]


def test_what_the_prompt_wrote_counts() -> None:
    assert KnightsAndKnaves(prefilled="<think>")([""], ["hm</think><answer>" + GOLD + "</answer>"], answer=[GOLD]) == [
        3.0
    ]


def test_every_puzzle_of_reasoning_gym_can_be_answered_right_and_wrong() -> None:
    puzzles = list(reasoning_gym.create_dataset("knights_knaves", size=30, seed=0, n_people=3))
    gold = [puzzle["answer"] for puzzle in puzzles]
    assert KnightsAndKnaves()([""] * 30, [wrapped(answer) for answer in gold], answer=gold) == [3.0] * 30
    swapped = []
    for puzzle in puzzles:
        terms = puzzle["metadata"]["knight_knave_terms"]
        swap = {str(terms["knight"]): str(terms["knave"]), str(terms["knave"]): str(terms["knight"])}
        swapped.append(" ".join(swap.get(word.strip(",."), word) for word in puzzle["answer"].split()))
    assert KnightsAndKnaves()([""] * 30, [wrapped(answer) for answer in swapped], answer=gold) == [-0.5] * 30


def test_data_that_say_nothing_give_no_reward() -> None:
    (noted,) = KnightsAndKnaves()([""], ["x"], answer=["42"])
    assert isinstance(noted, Noted)
    assert (noted.value, noted.event) == (None, "gold_unparsable")
    assert "'42', which does not say who is what" in noted.detail
