"""What rules say of rewards, groups and judges."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from groupwise_look.diagnosis import Finding, diagnose

JUDGED = {"domain": {"rewards": {"correct": {"kind": "exact_answer", "role": "judge"}}}}


def course(num_steps: int = 60, **metrics: Any) -> list[dict[str, Any]]:
    """Rows whose metrics go evenly from their first to their second number."""
    share = [step / (num_steps - 1) for step in range(num_steps)]
    rows = [{"step": step, "stage": "grpo"} for step in range(1, num_steps + 1)]
    for name, (first, last) in metrics.items():
        for row, part in zip(rows, share, strict=True):
            row[name.replace("__", "/")] = first + (last - first) * part
    return rows


def finding(rule: str, rows: list[dict[str, Any]], settings: Mapping[str, Any] | None = None) -> Finding:
    return next(finding for finding in diagnose(rows, settings) if finding.rule == rule)


def flat_at_the_end(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [row | {"frac_reward_zero_std": float(place >= 30)} for place, row in enumerate(rows)]


def test_answers_cut_off_from_the_first_step_want_more_room() -> None:
    said = finding("all_truncated", course(completions__clipped_ratio=(1.0, 1.0), completions__mean_length=(16, 16)))
    assert "Raise domain.sampling.max_new_tokens" in said.advice


def test_answers_that_grew_into_the_limit_want_no_more_room() -> None:
    rows = course(completions__clipped_ratio=(0.0, 0.0), completions__mean_length=(20, 64))
    for row in rows[25:]:
        row["completions/clipped_ratio"] = 1.0
    said = finding("all_truncated", rows)
    assert "would only feed it" in said.advice
    assert not said.advice.startswith("Raise")
    assert "from 21.5 to" in said.means


def test_answers_that_grew_from_a_limit_that_cut_many_already_want_no_more_room() -> None:
    rows = course(completions__clipped_ratio=(0.6, 1.0), completions__mean_length=(24, 64))
    assert finding("all_truncated", rows).advice.endswith("would only feed it.")


@pytest.mark.parametrize(
    ("metrics", "settings", "severity", "sentence"),
    [
        pytest.param({}, None, "note", "No judge shows", id="no judge"),
        pytest.param(
            {"completions__mean_length": (20, 64)},
            None,
            "warning",
            "Perhaps the policy has learnt to be long",
            id="answers grew",
        ),
        pytest.param(
            {"completions__clipped_ratio": (0.0, 1.0)},
            None,
            "warning",
            "Perhaps the policy has learnt to be long",
            id="answers are cut off",
        ),
    ],
)
def test_a_risen_reward_alone_is_not_called_learnt(
    metrics: dict[str, Any], settings: Any, severity: str, sentence: str
) -> None:
    said = finding("all_flat", flat_at_the_end(course(reward=(0.2, 1.0), **metrics)), settings)
    assert (said.severity, sentence in said.means) == (severity, True)
    assert "Stop here" not in said.advice


def test_a_judge_that_rose_too_says_what_was_learnt() -> None:
    judge = {"rewards__correct__mean": (0.2, 0.9), "rewards__correct__weight": (0.0, 0.0)}
    said = finding("all_flat", flat_at_the_end(course(reward=(0.2, 1.0), **judge)))
    assert (said.severity, "Stop here" in said.advice) == ("note", True)


def test_a_judge_that_fell_does_not() -> None:
    judge = {"rewards__correct__mean": (0.9, 0.2), "rewards__correct__weight": (0.0, 0.0)}
    said = finding("all_flat", flat_at_the_end(course(reward=(0.2, 1.0), **judge)))
    assert "Stop here" not in said.advice
    assert "No judge shows" in said.means


def test_a_judge_that_is_measured_held_out_alone_counts() -> None:
    rows = flat_at_the_end(course(reward=(0.2, 1.0)))
    rows[0]["eval/greedy/correct"], rows[-1]["eval/greedy/correct"] = 0.3, 0.9
    assert "Stop here" in finding("all_flat", rows, JUDGED).advice
    rows[-1]["eval/greedy/correct"] = 0.1
    assert "Stop here" not in finding("all_flat", rows, JUDGED).advice


def test_groups_that_earn_nothing_are_not_learnt() -> None:
    judge = {"rewards__correct__mean": (0.2, 0.6), "rewards__correct__weight": (0.0, 0.0)}
    said = finding("all_flat", flat_at_the_end(course(reward=(0.4, 0.63), groups__all_wrong=(0.0, 0.4), **judge)))
    assert (said.severity, "sure and wrong" in said.means) == ("warning", True)
    assert "Stop here" not in said.advice


@pytest.mark.parametrize(
    ("shares", "severities"),
    [((1.0, 1.0), ["warning"]), ((0.2, 0.2), []), ((0.0, 0.0), []), ((0.0, 1.0), ["note"])],
)
def test_copies_that_differ_as_much_as_others_are_named(shares: tuple[float, float], severities: list[str]) -> None:
    rows = course(groups__copies_noise=shares, reward=(0.2, 0.2))
    found = [finding for finding in diagnose(rows) if finding.rule == "reward_is_noise"]
    assert [finding.severity for finding in found] == severities


def test_a_rise_by_luck_excuses_nothing() -> None:
    rows = course(groups__copies_noise=(1.0, 1.0), reward=(0.2, 0.9))
    assert [finding.severity for finding in diagnose(rows) if finding.rule == "reward_is_noise"] == ["warning"]


INSIDE, BETWEEN = "groups__place_correlation", "batch__place_correlation"


def spoken(correlations: dict[str, tuple[float, float]], settings: dict[str, object] | None = None) -> list[str]:
    return [
        finding.what for finding in diagnose(course(**correlations), settings) if finding.rule == "reward_follows_place"
    ]


@pytest.mark.parametrize(
    ("correlations", "words"),
    [
        ({INSIDE: (0.9, 0.9)}, ["A member's reward and its place in the group"]),
        ({INSIDE: (-0.9, -0.9)}, ["A member's reward and its place in the group"]),
        ({BETWEEN: (0.9, 0.9)}, ["A group's mean reward and its place in the batch"]),
        ({INSIDE: (0.1, 0.1), BETWEEN: (0.1, 0.1)}, []),
        ({INSIDE: (0.0, 0.9)}, []),
    ],
)
def test_a_correlation_that_stays_is_said(correlations: dict[str, tuple[float, float]], words: list[str]) -> None:
    said = spoken(correlations)
    assert len(said) == len(words)
    assert all(text.startswith(word) for text, word in zip(said, words, strict=True))


def test_adaptive_sampling_sets_an_order_of_prompts_and_none_of_members() -> None:
    settings = {"train": {"adaptive_sampling": {"floor": 0.1}}}
    assert spoken({BETWEEN: (0.9, 0.9)}, settings) == []
    assert len(spoken({INSIDE: (0.9, 0.9)}, settings)) == 1


def test_correlations_of_two_groups_that_agree_by_luck_are_not_said() -> None:
    rows = [row | {"batch/place_correlation": float(step % 4 != 0) * 2 - 1} for step, row in enumerate(course())]
    assert "reward_follows_place" not in {finding.rule for finding in diagnose(rows)}


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


@pytest.mark.parametrize(("share", "made"), [(0.97, "97.0%"), (1.004, "all")])
def test_no_reward_makes_more_than_all(share: float, made: str) -> None:
    """The others may pull the sum down where one is high: its share of the spread is then above one."""
    rows = course(
        rewards__right__share=(share, share),
        rewards__right__std=(0.4, 0.4),
        rewards__right__mean=(0.5, 0.5),
        rewards__right__weight=(1.0, 1.0),
        rewards__short__share=(1 - share, 1 - share),
        rewards__short__std=(0.1, 0.1),
        rewards__short__mean=(0.2, 0.2),
        rewards__short__weight=(0.1, 0.1),
    )
    assert f"Reward right makes {made} of what the members" in finding("reward_dominates", rows).what
