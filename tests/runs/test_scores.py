"""Scores of damaged and unusual records; `tests/experiment/test_held_out.py` has whole evaluations."""

from __future__ import annotations

from groupwise.runs import reward_weights, score


def test_judges_have_no_weight() -> None:
    assert reward_weights({"domain": {"rewards": {"a": {"weight": 2.0}, "b": {"role": "judge", "weight": 3.0}}}}) == {
        "a": 2.0,
        "b": 0.0,
    }
    assert score({"rewards": {"a": 1.0, "b": 0.0}}, "reward", {"a": 2.0, "b": 0.0}) == 2.0


def test_a_record_without_rewards_has_no_score() -> None:
    assert score({}, "correct", {}) is None
    assert score({"rewards": 3}, "reward", {}) is None
    assert score({"rewards": {"a": None}}, "reward", {}) is None
