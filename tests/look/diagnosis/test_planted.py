"""Each rule speaks on a real training in which its fault was planted; nothing else does but the fault's own
consequences.
"""

from __future__ import annotations

import os
import signal
from dataclasses import replace
from pathlib import Path

import pytest
from tests.look.diagnosis.planted import PLANTED, WIDE, Planted, grpo, toy
from tests.look.diagnosis.record import recorded
from tests.training.toy import ToyDomain, job

from groupwise.config import ImportPath
from groupwise.runs import read_run
from groupwise.track import TrackConfig
from groupwise.training import resume, train
from groupwise_look.diagnosis import RULES, Finding, diagnose
from groupwise_look.diagnosis.rule import LOOKS


def found(planted: Planted, folder: Path) -> list[Finding]:
    planted.train(folder / "run")
    read = read_run(folder / "run")
    return diagnose(read.rows, read.config)


# One of each kind: in a reward, a component, the policy, the prompts, what is evaluated, numbers.
QUICK = {
    "all_flat",
    "advantage_turned",
    "divergence_negative",
    "reference_elsewhere",
    "weights_rewritten",
    "ratio_not_one",
    "prompts_come_back",
    "decisions_left_out",
    "held_out_unlike_training",
    "not_finite",
}


@pytest.mark.parametrize(
    "planted",
    [
        pytest.param(planted, marks=() if planted.rule in QUICK else pytest.mark.slow, id=planted.rule)
        for planted in PLANTED
    ],
)
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
    assert "A loss of zero is right here" in findings[0].means


def test_bounds_of_whole_members_that_stop_a_second_update_are_explained_and_no_alarm(tmp_path: Path) -> None:
    findings = found(Planted("clip_mostly_acts", toy(grpo("gspo", updates_per_batch=2, rate=0.01, **WIDE))), tmp_path)
    clip = next(finding for finding in findings if finding.rule == "clip_mostly_acts")
    assert clip.severity == "note"
    assert "ratio.kind = geometric" in clip.what
    assert "train.updates_per_batch = 1" in clip.advice
    assert {finding.severity for finding in findings} == {"note"}


def test_an_admission_that_keeps_flat_groups_alone_is_named(tmp_path: Path) -> None:
    kept = {"admission": {"kind": "callable", "path": "tests.look.diagnosis.planted:KeepsFlatGroups"}}
    # One decision of four is right by chance: some groups are flat and most are not. A supervised term trains on.
    recipe = grpo("grpo", rate=1e-3, objective={**kept, "divergence.kind": "none", "auxiliary": {"supervised": 0.1}})
    findings = found(Planted("admission_rejects", toy(recipe, domain=lambda: ToyDomain(num_decisions=1))), tmp_path)
    said = next(finding for finding in findings if finding.rule == "admission_rejects")
    assert "all of them flat" in said.what
    assert "turned round" in said.means


# Of the doctor's bench, with seed 0 (`benchmarks/doctor_faults/`): the fault, the rule and what else is said.
RECORDED = {
    "words_are_paid": ("texts_repeat", {"reward_follows_length", "all_truncated", "all_flat", "judge_falls"}),
    "four_tokens": ("limit_teaches_brevity", set[str]()),
    "drowned_in_noise": ("exploration_too_strong", {"all_flat"}),
    "pairs_out_of_order": ("training_unlike_held_out", {"reward_falls"}),
}


@pytest.mark.parametrize("name", RECORDED)
def test_the_fault_of_a_recorded_run_is_named(name: str) -> None:
    rule, beside = RECORDED[name]
    rows, config = recorded(name)
    said = {finding.rule for finding in diagnose(rows, config) if finding.severity != "note"}
    assert rule in said
    assert said <= beside | {rule}


def test_every_rule_has_a_planted_run() -> None:
    planted = {planted.rule for planted in PLANTED} | {rule for rule, _ in RECORDED.values()}
    assert {rule.name for rule in RULES} == planted | {"loss_zero"} == set(LOOKS)


def test_a_finding_is_said_while_it_trains_and_not_again_when_it_goes_on(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    flat = job(
        grpo(num_steps=45),
        domain=lambda device: ToyDomain(reward_of=lambda index, actions: 0.0),
        track=TrackConfig(console="lines"),
    )
    called = flat.recipes[0].train.model_copy(update={"callbacks": [ImportPath(f"{__name__}:interrupt_at_30")]})
    stops = replace(flat, recipes=[replace(flat.recipes[0], train=called)])
    assert train(stops, tmp_path / "run").interrupted
    first = capsys.readouterr().out
    assert "step 20: all_flat: 100% of the groups" in first
    assert "! reward_constant" in first
    resume(flat, tmp_path / "run")
    second = capsys.readouterr().out
    assert "resumed at step 30" in second
    assert "all_flat: 100%" not in second
    assert "! reward_constant" in second


def interrupt_at_30(step: int, metrics: object) -> None:
    """Ctrl-C."""
    if step == 30:
        os.kill(os.getpid(), signal.SIGINT)
