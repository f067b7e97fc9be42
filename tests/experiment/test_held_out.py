"""Scores of a run, read prompt by prompt from its folder."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from groupwise.config import ConfigError
from groupwise.experiment.held_out import WHOLE, HeldOut, final_scores

RECORDS = [
    {"key": "a", "mode": "greedy", "sample": 0, "rewards": {"correct": 1.0, "brief": 0.5}, "num_tokens": 3},
    {"key": "b", "mode": "greedy", "sample": 0, "rewards": {"correct": 0.0, "brief": None}, "num_tokens": 5},
    {"key": "a", "mode": "sampled", "sample": 0, "rewards": {"correct": 1.0, "brief": 0.5}, "num_tokens": 4},
    {"key": "a", "mode": "sampled", "sample": 1, "rewards": {"correct": 0.0, "brief": 0.5}, "num_tokens": 6},
]


@pytest.mark.parametrize(
    ("metric", "expected"),
    [
        ("greedy/correct", {"a": 1.0, "b": 0.0}),
        ("sampled/correct", {"a": 0.5}),
        ("greedy/length", {"a": 3, "b": 5}),
        ("greedy/reward", {"a": 1.0 * 2 + 0.5, "b": 0.0}),
        ("greedy/brief", {"a": 0.5}),
        ("sampled/pass@2", {WHOLE: 0.25}),
    ],
)
def test_scores_by_prompt(metric: str, expected: dict[str, float]):
    assert HeldOut(metric, 0, RECORDS, 0.25).scores({"correct": 2.0, "brief": 1.0}) == expected


def test_a_missing_reward_leaves_the_sum_on_its_scale():
    record = {"key": "a", "mode": "greedy", "rewards": {"correct": 1.0, "brief": None}}
    assert HeldOut("greedy/reward", 0, [record], None).scores({"correct": 2.0, "brief": 1.0}) == {"a": 3.0}


def test_a_sum_that_the_domain_gives_counts_whatever_else_the_record_measures():
    record = {"key": "a", "mode": "restored", "rewards": {"read": 0.5, "psnr": 30.0}, "reward": 0.5}
    assert HeldOut("restored/reward", 0, [record], None).scores({"read": 1.0}) == {"a": 0.5}
    assert HeldOut("restored/psnr", 0, [record], None).scores({}) == {"a": 30.0}


def write_run(folder: Path, summary: dict[str, Any] | None, records: dict[int, list[dict[str, Any]]]) -> Path:
    (folder / "rollouts").mkdir(parents=True)
    (folder / "config.json").write_text(
        json.dumps({"domain": {"rewards": {"correct": {"weight": 1.0}, "brief": {"role": "judge"}}}})
    )
    if summary is not None:
        (folder / "summary.json").write_text(json.dumps(summary))
    for step, lines in records.items():
        (folder / "rollouts" / f"evaluation-{step}.jsonl").write_text(
            "".join(json.dumps(line) + "\n" for line in lines)
        )
    return folder


def test_the_last_evaluation_counts_and_judges_do_not(tmp_path: Path):
    summary = {"metric": "greedy/reward", "before": 0.1, "after": 0.5, "steps": 10, "seed": 0}
    run = write_run(tmp_path / "run", summary, {9: RECORDS[1:2], 10: RECORDS[:2]})
    assert final_scores(run) == {"a": 1.0, "b": 0.0}


def test_an_environment_counts_with_its_own_weight(tmp_path: Path):
    summary = {"metric": "greedy/reward", "before": 0.1, "after": 0.5, "steps": 10, "seed": 0}
    record = {"key": "a", "mode": "greedy", "rewards": {"environment": 1.0, "correct": 0.5}}
    run = write_run(tmp_path / "run", summary, {10: [record]})
    config = {
        "domain": {"rewards": {"correct": {"weight": 2.0}}, "environment": {"kind": "calculator", "weight": 0.25}}
    }
    (run / "config.json").write_text(json.dumps(config))
    assert final_scores(run) == {"a": 0.25 * 1.0 + 2.0 * 0.5}


def test_a_run_without_records_has_its_mean_and_one_without_an_end_is_an_error(tmp_path: Path):
    summary = {"metric": "greedy/reward", "before": 0.1, "after": 0.5, "steps": 10, "seed": 0}
    assert final_scores(write_run(tmp_path / "short", summary, {})) == {WHOLE: 0.5}
    with pytest.raises(ConfigError, match="groupwise resume"):
        final_scores(write_run(tmp_path / "open", None, {}))
