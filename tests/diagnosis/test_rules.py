"""Each rule speaks on the run it is for and is silent on a healthy one."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import pytest

from groupwise.diagnosis import RULES, Watch, diagnose


def healthy(step: int) -> dict[str, float | int]:
    return {
        "step": step,
        "reward": 0.2 + 0.004 * step + 0.01 * (step % 3),
        "frac_reward_zero_std": 0.3,
        "completions/clipped_ratio": 0.1,
        "entropy": 1.0 - 0.004 * step,
        "updates/taken": 2,
        "clip_ratio/low_mean": 0.0,
        "clip_ratio/high_mean": 0.01,
        "on_policy_share": 0.5,
    }


SICK: dict[str, dict[str, Any]] = {
    "all_flat": {"frac_reward_zero_std": 0.98},
    "all_truncated": {"completions/clipped_ratio": 0.95},
    "no_update": {"updates/taken": 0},
    "clip_never_acts": {"clip_ratio/high_mean": 0.0},
    "reward_flat": {"reward": 0.2},
}


def test_a_healthy_run_is_left_alone() -> None:
    assert diagnose([healthy(step) for step in range(120)]) == []


@pytest.mark.parametrize("rule", SICK)
def test_each_sickness_is_named_alone(rule: str) -> None:
    rows = [healthy(step) | SICK[rule] for step in range(120)]
    assert [finding.rule for finding in diagnose(rows)] == [rule]
    assert diagnose(rows)[0].step == 119


def test_entropy_collapse_compares_start_and_end() -> None:
    rows = [healthy(step) | {"entropy": 1.0 * 0.95**step} for step in range(100)]
    assert [finding.rule for finding in diagnose(rows)] == ["entropy_collapse"]


def test_on_policy_runs_are_not_blamed_for_an_idle_clip() -> None:
    assert diagnose([healthy(step) | {"clip_ratio/high_mean": 0.0, "on_policy_share": 1.0} for step in range(120)]) == []


def test_a_short_run_is_not_judged() -> None:
    sick: dict[str, Any] = {key: value for values in SICK.values() for key, value in values.items()}
    assert diagnose([healthy(step) | sick for step in range(19)]) == []


def test_a_finding_is_said_once() -> None:
    watch = Watch()
    said = [finding.rule for step in range(200) for finding in watch.see(healthy(step) | SICK["no_update"])]
    assert said == ["no_update"]


def test_every_rule_has_a_sick_run() -> None:
    assert {rule.__name__ for rule in RULES} == {*SICK, "entropy_collapse"}


def test_the_rules_do_not_import_torch() -> None:
    code = "import sys, groupwise.diagnosis; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
