"""Healthy runs raise no alarm: the shipped experiments of all four domains, as they were recorded, and trained anew."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from tests.look.diagnosis.planted import grpo, toy
from tests.look.diagnosis.record import FOLDER, recorded

from groupwise import load_experiment
from groupwise.experiment.runner import run
from groupwise.objective import Objective
from groupwise.objective.preset import method_names
from groupwise.runs import read_run
from groupwise_look.diagnosis import Finding, diagnose

DOMAINS = ("language", "diffusion", "restoration", "selection")


def alarms(findings: list[Finding]) -> list[str]:
    """What calls for something to be done."""
    return [
        f"{finding.rule} (step {finding.first_step}): {finding.what}"
        for finding in findings
        if finding.severity != "note"
    ]


@pytest.mark.parametrize("name", DOMAINS)
def test_a_recorded_run_of_the_shipped_experiment(name: str) -> None:
    rows, config = recorded(name)
    assert sum("reward" in row for row in rows) >= 50
    assert alarms(diagnose(rows, config)) == []


def test_the_shipped_example_of_reward_hacking_is_caught() -> None:
    rows, config = recorded("diffusion_jpeg_without_kl")
    assert [finding.rule for finding in diagnose(rows, config) if finding.severity != "note"] == ["judge_falls"]


@pytest.mark.parametrize("name", DOMAINS)
def test_recorded_healthy_runs_are_small_and_name_their_command(name: str) -> None:
    text = (FOLDER / f"{name}.json").read_text(encoding="utf-8")
    assert len(text) < 60_000
    assert f'"command": "groupwise train {name}' in text


@pytest.mark.nightly
@pytest.mark.parametrize("name", [name for name in DOMAINS if name != "language"])
def test_a_fresh_run_of_the_shipped_experiment(name: str, tmp_path: Path) -> None:
    """The cups game is run, and asked the same, in `tests/integration/test_shipped_language.py`."""
    changes = ["seed=3", "track.console=none", "track.rollouts_every=0", "checkpoint.every=100000"]
    run(load_experiment(name, changes), tmp_path / "run", controls=False)
    read = read_run(tmp_path / "run")
    assert alarms(diagnose(read.rows, read.config)) == []


@pytest.mark.nightly
def test_every_method_on_a_task_it_can_learn(tmp_path: Path) -> None:
    """Trained at a moderate rate on a reward that can be earned, between 0 and 1; `topr` says that its constant
    baseline has to be chosen.
    """
    said: dict[str, list[str]] = {}
    for name in method_names():
        objective = Objective.preset(name)
        if (objective.requires | objective.requires_rollouts) - {
            "log_prob",
            "entropy",
            "score_norm",
            "reference_log_prob",
            "behaviour_log_prob",
        }:
            continue
        changes: dict[str, Any] = {"admission.kind": "all"} if objective.admission.resamples else {}
        changes |= {"advantage.value": 0.5} if objective.advantage.kind == "constant" else {}
        toy(
            grpo(
                name, num_steps=40, prompts_per_step=8, group_size=8, rate=0.01, updates_per_batch=2, objective=changes
            )
        )(tmp_path / name)
        read = read_run(tmp_path / name)
        if found := alarms(diagnose(read.rows, read.config)):
            said[name] = found
    assert said == {}


def test_a_collapse_within_the_first_steps_is_no_hacking() -> None:
    """Training recovers in part, and the held-out reward and the judge are both worse than at the start."""
    rows: list[dict[str, float | str]] = [
        {"step": 0, "stage": "grpo", "eval/restored/reward": -0.002, "eval/restored/judge": 0.55}
    ]
    rows += [
        {"step": step, "stage": "grpo", "reward": -0.03 + 0.0004 * step, "reward_std": 0.0005} for step in range(1, 61)
    ]
    rows[-1] |= {"eval/restored/reward": -0.004, "eval/restored/judge": 0.43}
    config = {"domain": {"rewards": {"judge": {"role": "judge"}}}}
    found = [finding for finding in diagnose(rows, config) if finding.severity != "note"]
    assert [finding.rule for finding in found] == ["reward_falls"]
    assert found[0].what == "The reward of the evaluations fell from -0.002 to -0.004."


def test_a_stage_that_is_measured_otherwise_has_not_fallen() -> None:
    rows: list[dict[str, float | str]] = [
        {"step": 0, "stage": "one", "reward": 28.0, "reward_std": 0.1, "eval/restored/reward": 28.0}
    ]
    rows += [
        {"step": 0, "stage": "two", "eval/restored/reward": 0.5},
        {"step": 1, "stage": "two", "reward": 0.5, "reward_std": 0.1},
    ]
    rows += [{"step": 2, "stage": "two", "reward": 0.5, "reward_std": 0.1, "eval/restored/reward": 0.55}]
    assert alarms(diagnose(rows, {})) == []


@pytest.mark.parametrize(("reward", "rules"), [(2.54, []), (2.38, ["entropy_collapse"])])
def test_a_policy_that_is_sure_and_good_has_not_collapsed(reward: float, rules: list[str]) -> None:
    """Selection's shipped experiment: the best of eight at the start (2.7) is luck in part, and a policy that ends at
    2.54 has learnt what there is.
    """
    share = [step / 249 for step in range(250)]
    rows: list[dict[str, float | str]] = [
        {
            "step": step + 1,
            "stage": "grpo",
            "reward": 2.3 + (reward - 2.3) * part,
            "groups/best": 2.7,
            "surprisal": 1.5 * 0.05**part,
        }
        for step, part in enumerate(share)
    ]
    assert [finding.rule for finding in diagnose(rows, {}) if finding.severity != "note"] == rules
