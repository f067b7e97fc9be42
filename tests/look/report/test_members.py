from __future__ import annotations

from pathlib import Path

from groupwise_look.report.groups import MOST_TOKENS, member, shortened
from groupwise_look.report.pictures import Pictures


def member_data(record: dict, parts: tuple[str, ...] = ()) -> dict:
    return member(record, parts, Path(), Pictures(0))


def test_each_part_of_the_reward_stands_in_the_pages_order() -> None:
    assert member_data({"reward": 0.5, "rewards": {"b": 2.0, "a": None}}, ("a", "b", "c")) == {
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
    assert member_data(record) == {
        "r": None,
        "a": None,
        "p": [],
        "k": ["x", "y"],
        "lp": [-0.123, None],
        "cr": [None, None],
    }


def test_long_texts_and_token_lists_are_cut() -> None:
    tokens = [str(place) for place in range(MOST_TOKENS + 5)]
    log_probs = [-float(place % 7) for place in range(MOST_TOKENS + 5)]
    encoded = member_data({"tokens": tokens, "token_log_prob": log_probs, "text": "b" * 10**6 + "the end"})
    assert len(encoded["k"]) == len(encoded["lp"]) == MOST_TOKENS
    assert encoded["more"] == 5
    assert encoded["k"][: encoded["head"]] == tokens[: encoded["head"]]
    assert encoded["k"][encoded["head"] :] == tokens[encoded["head"] + 5 :]
    assert encoded["lp"][encoded["head"] :] == log_probs[encoded["head"] + 5 :]
    assert "b … 994,007 characters left out … b" in encoded["t"]
    assert encoded["t"].endswith("the end")
    assert shortened("abc", 3) == "abc"


def test_values_of_any_type_are_texts() -> None:
    encoded = member_data(
        {
            "reward": "high",
            "advantage": [1],
            "text": {"a": 1},
            "rewards": 3,
            "messages": ["hello", {"role": 1, "content": None}],
            "score": 10**400,
        }
    )
    assert encoded["t"] == "{'a': 1}"
    assert encoded["m"] == [["", "hello"], ["1", "None"]]
    assert encoded["e"]["score"].startswith("1000")
    assert encoded["r"] is encoded["a"] is None


def test_remaining_fields_stand_under_e_and_empty_ones_are_left_out() -> None:
    assert member_data({"order": "similar last", "measured": [], "note": None, "rounds": ["four"]})["e"] == {
        "order": "similar last",
        "rounds": "['four']",
    }


def test_demonstrations_are_their_fields() -> None:
    encoded = member_data(
        {"demonstrations": [{"id": "a", "question": "2 + 2?", "answer": 4, "image": "none.png"}, "b"], "picks": [1, 0]}
    )
    assert encoded["d"] == [{"id": "a", "question": "2 + 2?", "answer": "4", "image": None}, {"id": "b"}]


def test_demonstrations_led_to_an_answer_beside_the_right_ones() -> None:
    measurements = [{"prediction": "3"}, None, {"prediction": "4", "correct": 1.0}]
    encoded = member_data({"demonstrations": [], "measured": measurements, "answers": ["4", "four", "4"]})
    assert (encoded["o"], encoded["w"]) == ("4", "4, four")
    assert not {"o", "w"} & set(member_data({"demonstrations": [], "measured": [7], "answers": "4"}))


def test_fields_that_rewards_logged_stand_under_e_and_are_no_pictures() -> None:
    encoded = member_data({"text": "4", "logged": {"parsed": 4, "text": "the fourth", "file": "x.png", "none": None}})
    assert encoded["t"] == "4"
    assert encoded["e"] == {"parsed": "4", "text": "the fourth", "file": "x.png"}
    assert "i" not in encoded
