from __future__ import annotations

from pathlib import Path

from groupwise.report.members import MOST_TOKENS, member, shortened
from groupwise.report.pictures import Pictures


def of(record: dict, parts: tuple[str, ...] = ()) -> dict:
    return member(record, parts, Path(), Pictures(0))


def test_each_part_of_the_reward_stands_in_the_pages_order() -> None:
    assert of({"reward": 0.5, "rewards": {"b": 2.0, "a": None}}, ("a", "b", "c")) == {
        "r": 0.5,
        "a": None,
        "p": [None, 2, None],
    }


def test_numbers_of_tokens_need_one_for_each_token() -> None:
    record = {
        "tokens": ["x", "y"],
        "token_log_prob": [-0.123456, None],
        "token_log_ratio": [0.1],
        "token_credit": [float("nan"), "z"],
    }
    assert of(record) == {"r": None, "a": None, "p": [], "k": ["x", "y"], "lp": [-0.123, None], "cr": [None, None]}


def test_nothing_is_endless() -> None:
    found = of({"tokens": ["a"] * (MOST_TOKENS + 5), "token_log_prob": [0.0] * (MOST_TOKENS + 5), "text": "b" * 10**6})
    assert len(found["k"]) == len(found["lp"]) == MOST_TOKENS
    assert found["more"] == 5
    assert found["t"].endswith("b … and 994,000 more characters")
    assert shortened("abc", 3) == "abc"


def test_values_of_any_type_are_texts() -> None:
    found = of(
        {
            "reward": "high",
            "advantage": [1],
            "text": {"a": 1},
            "rewards": 3,
            "messages": ["hello", {"role": 1, "content": None}],
            "score": 10**400,
        }
    )
    assert found["t"] == "{'a': 1}"
    assert found["m"] == [["", "hello"], ["1", "None"]]
    assert found["e"]["score"].startswith("1000")
    assert found["r"] is found["a"] is None


def test_what_has_no_place_of_its_own_is_kept_apart_and_empties_are_left_out() -> None:
    assert of({"order": "similar last", "measured": [], "note": None, "rounds": ["four"]})["e"] == {
        "order": "similar last",
        "rounds": "['four']",
    }


def test_demonstrations_are_their_fields() -> None:
    found = of(
        {"demonstrations": [{"id": "a", "question": "2 + 2?", "answer": 4, "image": "none.png"}, "b"], "picks": [1, 0]}
    )
    assert found["d"] == [{"id": "a", "question": "2 + 2?", "answer": "4", "image": None}, {"id": "b"}]


def test_demonstrations_led_to_an_answer_beside_the_right_ones() -> None:
    measured = [{"prediction": "3"}, None, {"prediction": "4", "correct": 1.0}]
    found = of({"demonstrations": [], "measured": measured, "answers": ["4", "four", "4"]})
    assert (found["o"], found["w"]) == ("4", "4, four")
    assert not {"o", "w"} & set(of({"demonstrations": [], "measured": [7], "answers": "4"}))


def test_what_rewards_logged_of_a_member_stands_among_the_rest_and_is_no_picture() -> None:
    found = of({"text": "4", "logged": {"parsed": 4, "text": "the fourth", "file": "x.png", "none": None}})
    assert found["t"] == "4"
    assert found["e"] == {"parsed": "4", "text": "the fourth", "file": "x.png"}
    assert "i" not in found
