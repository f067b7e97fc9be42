"""A remedy never feeds what is wrong: what the rules say of truncation and of flat groups depends on whether answers
grew and on what judges measure.
"""

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
