"""The rules beside a run: each speaks once a stage, and what no longer holds is known."""

from __future__ import annotations

import math
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.look.diagnosis.planted import PLANTED, Planted

from groupwise.runs import read_run
from groupwise_look.diagnosis import RULES, WINDOW, Finding, Series, Watch, diagnose, headline
from groupwise_look.diagnosis.series import Windows


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


# The headline names the cause, and what follows from it stands behind it.


RULES_BY_NAME = {rule.name: rule for rule in RULES}
TOO_HIGH = [planted for planted in PLANTED if planted.rule == "learning_rate_too_high"]


def finding(rule: str, first_step: int = 1, stage: str = "grpo", last_step: int = 40, holds: bool = True) -> Finding:
    severity = RULES_BY_NAME[rule].severity
    return Finding(rule, severity, stage, first_step, last_step, "", "", "", holds=holds)


def test_every_rule_has_a_phrase_and_follows_rules_that_there_are() -> None:
    for rule in RULES:
        assert rule.phrase, rule.name
        assert set(rule.follows) <= RULES_BY_NAME.keys(), rule.name


def test_nothing_is_its_own_cause() -> None:
    def visit(name: str, above: tuple[str, ...]) -> None:
        assert name not in above, above
        for cause in RULES_BY_NAME[name].follows:
            visit(cause, (*above, name))

    for rule in RULES:
        visit(rule.name, ())


def test_the_cause_leads_though_it_is_seen_last_and_is_less_severe() -> None:
    findings = [finding("all_flat", 9), finding("all_truncated", 8), finding("learning_rate_too_high", 30)]
    assert str(headline(findings)) == (
        "The learning rate is too high since step 30; because of it: all answers are truncated, all groups are flat."
    )


def test_findings_begin_with_the_cause_and_what_follows_from_it() -> None:
    found = [finding("weights_unchanged", 2), finding("all_flat", 9), finding("learning_rate_too_high", 30)]
    watch = Watch()
    watch._found = {("grpo", each.rule): each for each in found}
    leading = ["learning_rate_too_high", "all_flat"]
    assert [each.rule for each in watch.findings] == [*leading, "weights_unchanged"]
    assert repr(watch.findings).startswith("The learning rate is too high since step 30; because of it")


def test_of_two_causes_the_one_that_explains_more_leads() -> None:
    findings = [finding("advantage_one_sided", 3), finding("not_finite", 20), finding("no_update", 21)]
    leading = headline(findings)
    assert leading is not None
    assert (leading.cause.rule, [follower.rule for follower in leading.consequences]) == ("not_finite", ["no_update"])


def test_a_cause_that_ended_leads_what_it_left_behind() -> None:
    leading = headline([finding("reward_falls", 40), finding("learning_rate_too_high", 5, holds=False)])
    assert leading is not None
    assert (leading.cause.rule, [follower.rule for follower in leading.consequences]) == (
        "learning_rate_too_high",
        ["reward_falls"],
    )
    # It explains nothing that holds, so that it is over.
    other = headline([finding("reward_missing", 40), finding("learning_rate_too_high", 5, holds=False)])
    assert other is not None
    assert other.cause.rule == "reward_missing"


def test_the_newest_stage_counts() -> None:
    findings = [finding("no_update", stage="warm_up", last_step=10), finding("length_creep", 20)]
    leading = headline(findings)
    assert leading is not None
    assert leading.cause.rule == "length_creep"


@pytest.mark.parametrize("planted", TOO_HIGH, ids=lambda planted: planted.rule)
@pytest.mark.slow
def test_a_rate_that_is_too_high_leads_its_consequences_in_a_real_run(planted: Planted, tmp_path: Path) -> None:
    planted.train(tmp_path / "run")
    run = read_run(tmp_path / "run")
    leading = headline(diagnose(run.rows, run.config))
    assert leading is not None
    assert leading.cause.rule == "learning_rate_too_high"


# Means, their errors, and what lies above what.


def rewards_of(*values: float) -> Series:
    return Series("reward", list(range(1, len(values) + 1)), list(values))


def test_mean_and_error_by_hand() -> None:
    # Values 1, 2, 3: mean 2, variance 1, error of the mean sqrt(1/3).
    assert rewards_of(1, 2, 3).mean == 2
    assert math.isclose(rewards_of(1, 2, 3).error, math.sqrt(1 / 3))
    assert math.isnan(rewards_of().mean)
    assert rewards_of(5).error == 0


def test_above_needs_more_than_two_errors_of_the_difference() -> None:
    low = rewards_of(0, 0.2)  # mean .1, error .1
    # The difference's error is hypot(.1, .1) = .1414: two of them are .2828.
    assert not low.above(rewards_of(-0.27, -0.07))  # .1 above -.17: .27
    assert low.above(rewards_of(-0.29, -0.09))  # .1 above -.19: .29
    assert not rewards_of(1, 1).above(rewards_of(1, 1))


def test_numbers_that_diverged_raise_nothing() -> None:
    huge = Series("grad_norm", [1, 2, 3], [1e308, -1e308, 1.7e308])
    assert math.isfinite(huge.mean)
    assert huge.error > 1e307
    assert not huge.above(huge)


NUMBERS = st.lists(st.floats(-100, 100), max_size=15 * WINDOW)


def bounded_series(values: list[float]) -> Series:
    return Series("reward", list(range(len(values))), values)


@settings(deadline=None)
@given(NUMBERS)
def test_windows_are_those_of_the_whole(values: list[float]) -> None:
    windows = Windows("reward")
    for step, value in enumerate(values):
        windows.add(step, value)
    whole = [
        Series("reward", list(range(at, at + WINDOW)), values[at : at + WINDOW])
        for at in range(0, len(values) - WINDOW + 1, WINDOW)
    ]
    assert windows.newest == (whole[-1] if whole else None)
    assert windows.best == (max(whole[:-1], key=lambda window: window.mean) if whole[1:] else None)
    assert windows.risen == (
        bool(whole[1:]) and any(window.above(bounded_series(values[: 2 * WINDOW])) for window in whole)
    )
