"""Weighted sums with missing rewards, worked by hand."""

from __future__ import annotations

import pytest

from groupwise.reward import RewardError, RewardEvent, RewardTable

VALUES: dict[str, list[float | None]] = {
    "a": [1.0, None, 1.0, None],
    "b": [2.0, 2.0, None, None],
    "c": [-1.0, -1.0, -1.0, None],
}
WEIGHTS = {"a": 2.0, "b": 1.0, "c": -1.0}


def test_a_member_that_lacks_a_reward_has_no_sum_or_that_of_the_others() -> None:
    # Complete: 2 + 2 + 1. Without a: 2 + 1. Without b: 2 + 1. Without any: none.
    assert RewardTable(VALUES, WEIGHTS).total() == [5.0, None, None, None]
    assert RewardTable(VALUES, WEIGHTS).total(partial="sum") == [5.0, 3.0, 3.0, None]
    # The third is a group of its own, which b says nothing about.
    assert RewardTable(VALUES, WEIGHTS).total(groups=["x", "x", "y", "x"]) == [5.0, None, 3.0, None]


def test_a_reward_of_weight_zero_is_logged_and_does_not_make_a_member_scorable() -> None:
    table = RewardTable({"a": [1.0, None], "logged": [5.0, 5.0]}, {"logged": 0.0})
    assert table.total() == [1.0, None]
    assert table.metrics()["rewards/logged/mean"] == 5.0


def test_a_complete_member_is_the_plain_sum_to_the_last_bit() -> None:
    values = {f"r{index}": [0.1 * index] for index in range(1, 8)}
    weights = dict.fromkeys(values, 0.3)
    assert RewardTable(values, weights).total() == RewardTable(values, weights).total(partial="sum")


def test_the_objective_forms_the_same_sum() -> None:
    import torch

    from groupwise.objective.batch import grouped_rewards
    from groupwise.records import Rollouts

    rollouts = Rollouts(
        torch.zeros(4, dtype=torch.long), torch.ones(4, 1, dtype=torch.bool), torch.zeros(4, 1), VALUES, WEIGHTS
    )
    for partial in ("drop", "sum"):
        theirs = grouped_rewards(rollouts, partial, lambda tensor: tensor)
        ours = RewardTable(VALUES, WEIGHTS).total(partial)
        assert theirs.present[:, 0].tolist() == [value is not None for value in ours]
        assert theirs.value[:3, 0].tolist() == pytest.approx([value or 0.0 for value in ours[:3]])


def test_judges_are_out_of_the_sum_whatever_their_weight() -> None:
    table = RewardTable({"a": [1.0], "j": [9.0]}, {"a": 1.0, "j": 7.0}, judges=frozenset({"j"}))
    assert table.total() == [1.0]
    assert table.weights["j"] == 0.0


def test_nothing_to_sum_is_an_error() -> None:
    with pytest.raises(RewardError, match="no reward has a weight other than 0"):
        RewardTable({"a": [1.0]}, {"a": 0.0}).total()


def test_metrics_are_of_each_reward_by_itself() -> None:
    events = [
        RewardEvent("timeout", "b", count=2),
        RewardEvent("odd", "a", member=0),
        RewardEvent("odd", "a", member=1),
    ]
    metrics = RewardTable({"a": [1.0, 3.0, None], "b": [None, None, None]}, events=events, seconds={"a": 0.5}).metrics()
    assert metrics == pytest.approx(
        {
            "rewards/a/mean": 2.0,
            "rewards/a/std": 1.0,
            "rewards/a/missing": 1 / 3,
            "rewards/a/seconds": 0.5,
            "rewards/b/missing": 1.0,
            "rewards/b/num_timeout": 2.0,
            "rewards/a/num_odd": 2.0,
        }
    )


def test_tables_are_checked() -> None:
    with pytest.raises(RewardError, match=r"lengths \{'a': 1, 'b': 2\}"):
        RewardTable({"a": [1.0], "b": [1.0, 2.0]})
    with pytest.raises(RewardError, match=r"weights name \['b'\]"):
        RewardTable({"a": [1.0]}, {"b": 1.0})


def test_joining_and_selecting() -> None:
    first_table = RewardTable({"a": [1.0, None]}, {"a": 2.0}, [RewardEvent("missing", "a", member=1)], {"a": 1.0})
    joined = RewardTable.concatenate([first_table, first_table])
    assert joined.values == {"a": [1.0, None, 1.0, None]}
    assert [event.member for event in joined.events] == [1, 3]
    assert joined.seconds == {"a": 2.0}
    assert joined.select([2, 0, 1]).total() == [2.0, 2.0, None]
    with pytest.raises(RewardError, match="different rewards"):
        RewardTable.concatenate([first_table, RewardTable({"a": [1.0]}, {"a": 1.0})])
