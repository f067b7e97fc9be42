from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from groupwise.runs import Run
from groupwise_look.report.groups import (
    MOST_TOKENS,
    Group,
    browse,
    choose,
    group_key,
    member,
    scan,
    shortened,
)
from groupwise_look.report.pictures import Pictures


def test_a_group_is_flat_or_all_wrong_by_its_rewards() -> None:
    cases = {
        (0.0, 0.0): (True, True, 0.0),
        (1.0, 1.0): (True, False, 0.0),
        (0.0, 1.0): (False, False, 1.0),
        (-1.0, -1.0): (True, True, 0.0),
    }
    for (low, high), expected in cases.items():
        group = Group(1, 0, 4, low, high)
        assert (group.flat, group.all_wrong, group.spread) == expected
    assert not Group(1, 0, 4, None, None).flat, "a group without rewards was not compared"


def test_recorded_numbers_equal_the_metrics_of_training(compared_runs: list[Run]) -> None:
    run = compared_runs[0]
    recorded = scan(run)
    assert [len(recorded.advantages[step]) for step in run.rollouts] == [12, 12, 12]
    assert [float(recorded.rewards[step].mean()) for step in (1, 2, 3)] == pytest.approx(run.series("reward")[1])
    assert [float(recorded.advantages[step].std()) for step in (1, 2, 3)] == pytest.approx(
        run.series("advantages_std")[1], rel=0.05
    )
    flat = [sum(group.flat for group in recorded.groups if group.step == step) / 3 for step in (1, 2, 3)]
    assert flat == pytest.approx(run.series("groups/flat")[1])
    assert set(recorded.reward_names) == {"short", "correct"}


def test_records_of_any_form_are_counted(write_run: Callable[..., Run]) -> None:
    members: list[dict[str, Any]] = [
        {"group": 0, "reward": 1.0, "advantage": 1.0},
        {"group": 0, "reward": None, "advantage": None},
        {"group": [7], "reward": "high"},
        {},
        {"prompt": {"a": 1}, "reward": True, "rewards": [1]},
    ]
    recorded = scan(write_run(members=members))
    assert [(group.size, group.low, group.high) for group in recorded.groups] == [
        (2, 1.0, 1.0),
        (1, None, None),
        (1, None, None),
        (1, None, None),
    ]
    assert recorded.advantages[1].tolist() == [1.0]
    assert group_key({"group": 0, "key": "a"}) == 0, "the first group has a number too"


def make_groups(steps: int) -> list[Group]:
    """Three groups a step: one flat at 0 in the first tenth, one flat at 1, one whose spread grows."""
    groups = []
    for step in range(1, steps + 1):
        low = 0.0 if step <= steps // 10 else -0.5
        groups += [Group(step, 0, 8, low, 0.0), Group(step, 1, 8, 1.0, 1.0), Group(step, 2, 8, 0.0, step / steps)]
    return groups


def test_every_stratum_is_served_and_the_sample_is_as_large_as_asked() -> None:
    chosen = choose(make_groups(1000), 60)
    assert len(chosen) == len({id(group) for group, _ in chosen}) == 60
    counts = Counter(stratum for _, stratum in chosen)
    assert set(counts) == {"first", "last", "highest spread", "all wrong", "flat", "evenly over the run"}
    assert min(counts.values()) >= 2
    spread = [group.spread for group, stratum in chosen if stratum == "highest spread"]
    assert min(spread) >= sorted((group.spread for group in make_groups(1000)), reverse=True)[20]
    assert all(group.all_wrong for group, stratum in chosen if stratum == "all wrong")
    flat = sorted(group.step for group, stratum in chosen if stratum == "flat")
    assert flat[0] < 200, "over the whole run"
    assert flat[-1] > 800, "over the whole run"


@given(st.integers(0, 40), st.integers(1, 30))
def test_never_more_than_there_are_and_never_one_twice(steps: int, most: int) -> None:
    groups = make_groups(steps)
    chosen = choose(groups, most)
    assert len(chosen) == min(most, len(groups))
    assert len({(group.step, group.key) for group, _ in chosen}) == len(chosen)


def browse_run(
    run: Run, *, most_groups: int = 100, text_bytes: int = 10**6, picture_bytes: int = 10**6
) -> dict[str, Any]:
    return browse(run, scan(run), most_groups=most_groups, text_bytes=text_bytes, picture_bytes=picture_bytes)


def test_members_of_a_real_group_are_sorted_by_reward_with_their_tokens(compared_runs: list[Run]) -> None:
    browser_data = browse_run(compared_runs[0])
    assert browser_data["counts"]["shown"] == browser_data["counts"]["recorded"] == 9
    assert [group["step"] for group in browser_data["groups"]] == [1, 1, 1, 2, 2, 2, 3, 3, 3]
    for group in browser_data["groups"]:
        rewards = [member["r"] for member in group["members"]]
        assert len(rewards) == 4
        assert rewards == sorted(rewards, reverse=True)
        assert all(len(member["k"]) == len(member["lp"]) == member["n"] for member in group["members"])
    assert any("lr" in member for group in browser_data["groups"] for member in group["members"]), (
        "the second update left ratio one"
    )


def records(number: int, text: str = "x") -> list[dict[str, Any]]:
    return [
        {"group": place // 4, "prompt": "p", "text": text, "reward": float(place % 4), "advantage": 0.0, "rewards": {}}
        for place in range(number)
    ]


def test_the_text_budget_holds_and_the_counts_say_how_many_groups_are_left_out(write_run: Callable[..., Run]) -> None:
    browser_data = browse_run(write_run(members=records(400, "x" * 1000)), text_bytes=50_000)
    assert 5 < browser_data["counts"]["shown"] < 100
    assert browser_data["counts"]["recorded"] == 100
    assert len(json.dumps(browser_data["groups"])) < 60_000
    assert sum(browser_data["counts"]["strata"].values()) == browser_data["counts"]["shown"]


def member_data(record: dict, parts: tuple[str, ...] = ()) -> dict:
    return member(record, parts, Path(), Pictures(0))


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


def test_demonstrations_led_to_an_answer_beside_the_right_ones() -> None:
    measurements = [{"prediction": "3"}, None, {"prediction": "4", "correct": 1.0}]
    encoded = member_data({"demonstrations": [], "measured": measurements, "answers": ["4", "four", "4"]})
    assert (encoded["o"], encoded["w"]) == ("4", "4, four")
    assert not {"o", "w"} & set(member_data({"demonstrations": [], "measured": [7], "answers": "4"}))
