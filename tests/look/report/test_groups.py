from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from groupwise.runs import Run
from groupwise_look.report.groups import Group, _spread_out, choose, group_key, scan


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


def test_any_beginning_of_the_sample_is_a_sample() -> None:
    sample = choose(make_groups(1000), 60)
    assert {stratum for _, stratum in sample[:6]} == {
        "first",
        "last",
        "highest spread",
        "all wrong",
        "flat",
        "evenly over the run",
    }


@given(st.integers(0, 40), st.integers(1, 30))
def test_never_more_than_there_are_and_never_one_twice(steps: int, most: int) -> None:
    groups = make_groups(steps)
    chosen = choose(groups, most)
    assert len(chosen) == min(most, len(groups))
    assert len({(group.step, group.key) for group, _ in chosen}) == len(chosen)


@given(st.integers(0, 300))
def test_spreading_out_keeps_every_place(count: int) -> None:
    assert sorted(_spread_out(list(range(count)))) == list(range(count))


def test_a_beginning_lies_evenly_over_the_whole() -> None:
    assert sorted(_spread_out(list(range(100)))[:7]) == [12, 25, 37, 50, 62, 75, 87]
