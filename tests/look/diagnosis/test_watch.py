"""The rules beside a run: each speaks once a stage, and what no longer holds is known."""

from __future__ import annotations

import subprocess
import sys
import time

import pytest

from groupwise_look.diagnosis import Watch, diagnose


def rows(flat: list[float], stage: str = "grpo", start: int = 0) -> list[dict[str, object]]:
    return [
        {"step": start + step, "stage": stage, "frac_reward_zero_std": value, "reward": 0.0}
        for step, value in enumerate(flat, start=1)
    ]


def test_a_finding_is_said_once() -> None:
    watch = Watch()
    assert [(found.rule, found.first_step) for row in rows([1.0] * 60) for found in watch.see(row)] == [
        ("all_flat", 20)
    ]


def test_a_finding_that_no_longer_holds_keeps_where_it_held() -> None:
    found = diagnose(rows([1.0] * 30 + [0.2] * 30))
    assert [(each.rule, each.holds, each.first_step, each.last_step) for each in found] == [("all_flat", False, 20, 30)]
    assert Watch().headline is None


def test_each_stage_is_judged_by_its_own_rows() -> None:
    # Twelve flat steps in each of two stages: no stage has twenty.
    assert diagnose(rows([1.0] * 12, "first") + rows([1.0] * 12, "second", 12)) == []
    found = diagnose(rows([1.0] * 20, "first") + rows([0.0] * 20, "second", 20))
    assert [(each.stage, each.holds) for each in found] == [("first", True)]


def test_the_worst_is_of_the_current_stage_and_holds() -> None:
    watch = Watch()
    for row in rows([1.0] * 20):
        watch.see(row)
    assert watch.headline is not None
    assert watch.headline.cause.rule == "all_flat"
    for row in rows([0.0] * 5, "next", 20):
        watch.see(row)
    assert watch.headline is None


def test_live_and_afterwards_are_the_same() -> None:
    given = rows([1.0] * 33)
    watch = Watch()
    live = [found.rule for row in given for found in watch.see(row)]
    assert live == [found.rule for found in diagnose(given)]


@pytest.mark.timing
def test_five_thousand_steps_are_judged_in_seconds() -> None:
    start = time.process_time()
    diagnose([{**row, "entropy": 1.0, "kl": 0.1, "updates/taken": 1, "loss_pg": 0.0} for row in rows([0.5] * 5000)])
    assert time.process_time() - start < 5


def test_the_rules_do_not_import_torch() -> None:
    code = "import sys, groupwise_look.diagnosis; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
