"""What a run is judged by and not trained on counts as a judge."""

from __future__ import annotations

from typing import Any

import pytest
from tests.look.diagnosis.rule.test_advice import course

from groupwise_look.diagnosis import diagnose


def alarms(scores: tuple[float, float], *, rewards: tuple[str, ...] = ("vqa",), goal: str = "max") -> set[str]:
    """The alarms of a run whose reward rises, evaluated by its accuracy before the first step and after the last."""
    settings: dict[str, Any] = {
        "train": {"metric": "selected/accuracy", "metric_goal": goal},
        "domain": {"rewards": {name: {"kind": "callable", "role": "reward"} for name in rewards}},
    }
    rows = course(num_steps=60, reward=(0.2, 0.9), reward_std=(0.3, 0.3))
    before = {"step": 0, "stage": "grpo", "eval/selected/accuracy": scores[0], "eval/selected/reward": 0.2}
    rows[-1] |= {"eval/selected/accuracy": scores[1], "eval/selected/reward": 0.9}
    return {finding.rule for finding in diagnose([before, *rows], settings) if finding.severity != "note"}


@pytest.mark.parametrize(
    ("scores", "options", "said"),
    [
        pytest.param((0.8, 0.56), {}, True, id="it falls"),
        pytest.param((0.8, 0.78), {}, False, id="it falls a little"),
        pytest.param((0.8, 0.9), {}, False, id="it rises"),
        pytest.param((0.8, 0.56), {"rewards": ("accuracy",)}, False, id="it is trained on"),
        pytest.param((0.8, 0.56), {"goal": "min"}, False, id="it should fall"),
    ],
)
def test_the_metric_that_a_run_is_judged_by(scores: tuple[float, float], options: dict[str, Any], said: bool) -> None:
    assert ("judge_falls" in alarms(scores, **options)) == said


@pytest.mark.parametrize(
    ("judged", "paid", "last", "said"),
    [
        pytest.param((0.3, 0.1), (0.2, 0.2), 0.25, True, id="it collapses"),
        pytest.param((0.3, 0.2), (0.2, 0.2), 0.25, False, id="it falls by a third"),
        pytest.param((0.3, 0.1), (0.2, 0.15), 0.25, True, id="what is paid falls within luck"),
        pytest.param((0.3, 0.1), (0.2, 0.02), 0.25, False, id="what is paid falls as well"),
        pytest.param((0.3, 0.1), (0.2, 0.2), 0.22, False, id="the reward rises by less than its error"),
        pytest.param((0.1, 0.02), (0.2, 0.2), 0.25, False, id="within the luck of its members"),
    ],
)
def test_a_judge_that_collapses_where_the_reward_probably_rises(
    judged: tuple[float, float], paid: tuple[float, float], last: float, said: bool
) -> None:
    settings = {
        "domain": {"rewards": {"correct": {"role": "train"}, "worked": {"role": "judge"}}, "data": {"num_held_out": 50}}
    }
    rows = course(num_steps=60, reward_std=(0.3, 0.3), rewards_std=(0.4, 0.4))
    for place, row in enumerate(rows):
        # The difference of two means of 20 steps has the standard error 0.032.
        row["reward"] = (0.2 if place < 30 else last) + 0.1 * (-1) ** place
    before = {"step": 0, "stage": "grpo", "eval/sampled/worked": judged[0], "eval/sampled/reward": paid[0]}
    rows[-1] |= {"eval/sampled/worked": judged[1], "eval/sampled/reward": paid[1]}
    assert ("judge_falls" in {finding.rule for finding in diagnose([before, *rows], settings)}) == said


@pytest.mark.parametrize(("scores", "said"), [([0.0, 0.3, 0.1], True), ([0.0, 0.02, 0.0], False)])
def test_a_judge_that_falls_from_its_best_falls_beyond_the_luck_of_its_members(scores: list[float], said: bool) -> None:
    settings = {
        "domain": {"rewards": {"correct": {"role": "train"}, "worked": {"role": "judge"}}, "data": {"num_held_out": 50}}
    }
    start: dict[str, Any] = {"step": 0, "stage": "grpo"}
    rows = [start, *course(num_steps=60, reward=(0.2, 0.9), reward_std=(0.3, 0.3))]
    for place, score, paid in zip((0, 30, 60), scores, (0.2, 0.5, 0.9), strict=True):
        rows[place] |= {"eval/sampled/worked": score, "eval/sampled/reward": paid}
    assert ("judge_falls" in {finding.rule for finding in diagnose(rows, settings)}) == said
