from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from groupwise.runs import Run
from groupwise_look.report.groups import MOST_MEMBERS, browse, scan


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


def test_pictures_are_embedded_and_the_rest_of_the_record_is_there(drawing_run: Run) -> None:
    browser_data = browse_run(drawing_run)
    places = [member["i"]["image"] for group in browser_data["groups"] for member in group["members"]]
    assert len(places) == 16
    assert {browser_data["pictures"][place].partition(",")[0] for place in places} == {"data:image/png;base64"}
    assert browser_data["groups"][0]["prompt"].startswith("the digit")


def test_demonstrations_are_named(selection_run: Run) -> None:
    member = browse_run(selection_run)["groups"][0]["members"][0]
    assert 1 <= len(member["d"]) <= 2
    assert {"id", "question", "answer"} <= set(member["d"][0])


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


def test_of_a_huge_group_the_best_and_the_worst_stay(write_run: Callable[..., Run]) -> None:
    members = [{"group": 0, "reward": float(place)} for place in range(1000)]
    (group,) = browse_run(write_run(members=members))["groups"]
    rewards = [member["r"] for member in group["members"]]
    assert len(rewards) == MOST_MEMBERS
    assert (rewards[0], rewards[MOST_MEMBERS // 2 - 1], rewards[MOST_MEMBERS // 2], rewards[-1]) == (999, 936, 63, 0)
    assert group["left"] == 1000 - MOST_MEMBERS


def test_a_prompt_may_be_a_conversation_or_missing(write_run: Callable[..., Run]) -> None:
    browser_data = browse_run(
        write_run(
            members=[
                {"group": 0, "prompt": [{"role": "user", "content": "hi"}]},
                {"group": 1},
                {"group": 2, "prompt": {"a": 1}},
            ]
        )
    )
    assert [group["prompt"] for group in browser_data["groups"]] == [[["user", "hi"]], "", "{'a': 1}"]


def test_a_file_that_vanishes_while_it_is_read_leaves_the_others(write_run: Callable[..., Run]) -> None:
    run = write_run(members=records(4))
    recorded = scan(run)
    run.rollouts[1].unlink()
    browser_data = browse(run, recorded, most_groups=9, text_bytes=1000, picture_bytes=0)
    assert browser_data["groups"] == []
