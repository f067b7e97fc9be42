"""Early stopping that ends a stage before anything has counted as a gain."""

from __future__ import annotations

from typing import Any

import pytest

from groupwise_look.diagnosis import diagnose
from groupwise_look.diagnosis.rule.progress import STOPPED_EARLY


def alarms(scores: list[float], rule: dict[str, Any] | None, goal: str = "max") -> list[str]:
    """What is said of a run that was evaluated before its first step and after each."""
    settings = {"train": {"metric": "greedy/correct", "metric_goal": goal, "early_stopping": rule}}
    rows: list[dict[str, Any]] = [{"step": 0, "eval/greedy/correct": scores[0]}]
    rows += [{"step": step, "reward": 0.5, "eval/greedy/correct": score} for step, score in enumerate(scores[1:], 1)]
    return [finding.rule for finding in diagnose(rows, settings) if finding.severity != "note" and finding.holds]


@pytest.mark.parametrize(
    ("scores", "rule", "said"),
    [
        pytest.param([0.5, 0.6], {"patience": 1, "min_gain": 1.0}, True, id="more than can be gained"),
        pytest.param([0.5, 0.5, 0.4], {"patience": 2, "min_gain": 0.0}, True, id="nothing gained"),
        pytest.param([0.5, 0.5], {"patience": 2, "min_gain": 0.0}, False, id="it still waits"),
        pytest.param([0.5, 0.6, 0.5], {"patience": 1, "min_gain": 0.01}, False, id="it had gained"),
        pytest.param([0.5, 0.5, 0.4], {"patience": 1, "min_gain": 0.0}, False, id="the stage went on"),
        pytest.param([0.5] * 6, {"min_gain": 0.01}, True, id="the patience that is not written"),
        pytest.param([0.5] * 5, {"min_gain": 0.01}, False, id="it waits for five"),
        pytest.param([0.5, 0.5, 0.4], None, False, id="no early stopping"),
    ],
)
def test_a_stop_without_any_gain_is_said(scores: list[float], rule: dict[str, Any] | None, said: bool) -> None:
    assert ("stopped_early" in alarms(scores, rule)) == said


def test_a_metric_that_should_fall_gains_by_falling() -> None:
    rule = {"patience": 1, "min_gain": 0.05}
    assert "stopped_early" in alarms([0.5, 0.6], rule, "min")
    assert "stopped_early" not in alarms([0.5, 0.4], rule, "min")


@pytest.mark.parametrize(
    ("losses", "rewards", "said"),
    [
        pytest.param([0.5, 0.4, 0.6, 0.7], [0.2, 0.2, 0.3, 0.4], True, id="what counts as worse is what is paid"),
        pytest.param([0.5, 0.4, 0.6, 0.7], [0.2, 0.4, 0.3, 0.4], False, id="the reward stands as well"),
        pytest.param([0.5, 0.4, 0.6, 0.3], [0.2, 0.2, 0.3, 0.4], False, id="it gains"),
        pytest.param([0.5, 0.4, 0.6], [0.2, 0.2, 0.4], False, id="it still waits"),
    ],
)
def test_a_stop_while_the_reward_rises_is_said(losses: list[float], rewards: list[float], said: bool) -> None:
    settings = {"train": {"metric": "a/loss", "metric_goal": "min", "early_stopping": {"patience": 2}}}
    rows: list[dict[str, Any]] = [
        {"step": step, "eval/a/loss": loss, "eval/a/reward": reward} | ({"reward": 0.5} if step else {})
        for step, (loss, reward) in enumerate(zip(losses, rewards, strict=True))
    ]
    found = [finding for finding in diagnose(rows, settings) if finding.holds and finding.rule == "stopped_early"]
    assert bool(found) == said
    # The metric had gained before: what the rule says of a stage without any gain would be false.
    assert not [finding for finding in found if finding.means == STOPPED_EARLY.means]
