"""Scores of damaged and unusual records; `tests/experiment/test_loaded_run.py` has whole evaluations."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from groupwise.runs import EvaluatedOn, reward_weights, score


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


# The decision when a result may be called held-out: by the folder's counts, by an older configuration, and for
# several runs.


@pytest.mark.parametrize(
    ("counts", "prompts", "metric"),
    [
        ((512, 0), "held-out prompts", "held-out m"),
        ((10, 10), "training prompts", "m on training prompts"),
        ((10, 1), "evaluation prompts (1 of 10 trained on)", "m on evaluation prompts (1 of 10 trained on)"),
        ((0, 0), "evaluation prompts", "m on evaluation prompts"),
    ],
)
def test_one_word_for_each_case(counts: tuple[int, int], prompts: str, metric: str) -> None:
    assert EvaluatedOn(*counts).prompts == prompts
    assert EvaluatedOn(*counts).of("m") == metric


@pytest.mark.parametrize(
    ("config", "prompts"),
    [
        ({"domain": {"kind": "diffusion", "data": {"num_held_out": 0}}}, "training prompts"),
        ({"domain": {"kind": "diffusion", "data": {"num_held_out": 8}}}, "held-out prompts"),
        ({"domain": {"kind": "diffusion", "data": 7}}, "training prompts"),
        ({"domain": {"kind": "restoration", "source": {"kind": "digits"}}}, "held-out prompts"),
        ({"domain": {"kind": "language"}}, "held-out prompts"),
        ({}, "evaluation prompts"),
    ],
)
def test_a_folder_of_an_older_version_is_read_by_its_configuration(config: dict[str, Any], prompts: str) -> None:
    assert EvaluatedOn.read(config, [{"seed": 0}]).prompts == prompts
    assert EvaluatedOn.read(config, []).prompts == prompts


@pytest.mark.parametrize("noted", [7, {}, {"num": "many", "num_trained": 0}, None])
def test_what_somebody_made_of_the_record_is_passed_over(noted: Any, tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(json.dumps({"domain": {"kind": "language"}}))
    (tmp_path / "environment.json").write_text(json.dumps({"starts": [{"evaluated_on": noted}]}))
    assert EvaluatedOn.read_folder(tmp_path).prompts == "held-out prompts"


def test_the_newest_start_says_it(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(json.dumps({"domain": {"kind": "language"}}))
    starts = [{"evaluated_on": EvaluatedOn(4, trained).record()} for trained in (0, 4)]
    (tmp_path / "environment.json").write_text(json.dumps({"starts": starts}))
    assert EvaluatedOn.read_folder(tmp_path).prompts == "training prompts"


# A run of which older rollouts were left out, as its folder tells it.
