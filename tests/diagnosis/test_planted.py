"""Each rule speaks on a real training in which its fault was planted; nothing else does but the fault's own consequences."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.diagnosis.planted import PLANTED, Planted, grpo, toy

from groupwise.diagnosis import RULES, Finding, diagnose
from groupwise.runs import read_run


def found(planted: Planted, folder: Path) -> list[Finding]:
    planted.train(folder / "run")
    run = read_run(folder / "run")
    return diagnose(run.rows, run.config)


@pytest.mark.parametrize("planted", PLANTED, ids=lambda planted: planted.rule)
def test_the_planted_fault_is_named(planted: Planted, tmp_path: Path) -> None:
    findings = found(planted, tmp_path)
    own = [finding for finding in findings if finding.rule == planted.rule]
    assert own, [finding.rule for finding in findings]
    assert own[0].evidence
    assert all(len(series) for series in own[0].evidence)
    assert own[0].first_step <= own[0].last_step
    others = {finding.rule for finding in findings if finding.severity != "note"} - {planted.rule}
    assert others <= planted.beside, others


def test_the_loss_that_is_zero_at_the_start_is_explained_and_no_alarm(tmp_path: Path) -> None:
    findings = found(Planted("loss_zero", toy(grpo("grpo", rate=0.01))), tmp_path)
    assert [(finding.rule, finding.severity) for finding in findings] == [("loss_zero", "note")]
    assert "That is right" in findings[0].means


def test_every_rule_has_a_planted_run() -> None:
    assert {rule.name for rule in RULES} == {planted.rule for planted in PLANTED} | {"loss_zero"}
