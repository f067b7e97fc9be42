"""The headline names the cause, and what follows from it stands behind it."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.look.diagnosis.planted import PLANTED, Planted

from groupwise.runs import read_run
from groupwise_look.diagnosis import RULES, Finding, diagnose, headline

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


def test_of_two_causes_the_one_that_explains_more_leads() -> None:
    findings = [finding("advantage_one_sided", 3), finding("not_finite", 20), finding("no_update", 21)]
    leading = headline(findings)
    assert leading is not None
    assert (leading.cause.rule, [follower.rule for follower in leading.consequences]) == ("not_finite", ["no_update"])


def test_notes_and_faults_that_ended_are_no_headline() -> None:
    assert headline([finding("loss_zero"), finding("reward_flat", holds=False)]) is None


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
def test_a_rate_that_is_too_high_leads_its_consequences_in_a_real_run(planted: Planted, tmp_path: Path) -> None:
    planted.train(tmp_path / "run")
    run = read_run(tmp_path / "run")
    leading = headline(diagnose(run.rows, run.config))
    assert leading is not None
    assert leading.cause.rule == "learning_rate_too_high"
