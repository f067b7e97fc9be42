"""Each rule speaks on a real training in which its fault was planted; nothing else does but the fault's own
consequences.
"""

from __future__ import annotations

import os
import signal
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tests.look.diagnosis.planted import PLANTED, WIDE, Planted, grpo, toy
from tests.look.diagnosis.record import FOLDER, recorded
from tests.training.toy import ToyDomain, job

from groupwise import load_experiment
from groupwise.config import ImportPath
from groupwise.experiment.runner import run
from groupwise.objective import Objective
from groupwise.objective.preset import method_names
from groupwise.runs import read_run
from groupwise.track import TrackConfig
from groupwise.training.run.launch import resume, train
from groupwise_look.diagnosis import RULES, Finding, diagnose
from groupwise_look.diagnosis.rule import LOOKS


def found(planted: Planted, folder: Path) -> list[Finding]:
    planted.train(folder / "run")
    read = read_run(folder / "run")
    return diagnose(read.rows, read.config)


# One of each kind: in a reward, a component, the policy, the prompts, numbers.
QUICK = {"all_flat", "advantage_turned", "reference_elsewhere", "ratio_not_one", "prompts_come_back", "not_finite"}


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


@pytest.mark.slow
def test_the_loss_that_is_zero_at_the_start_is_explained_and_no_alarm(tmp_path: Path) -> None:
    findings = found(Planted("loss_zero", toy(grpo("grpo", rate=0.01))), tmp_path)
    assert [(finding.rule, finding.severity) for finding in findings] == [("loss_zero", "note")]
    assert "A loss of zero is right here" in findings[0].means


@pytest.mark.slow
def test_bounds_of_whole_members_that_stop_a_second_update_are_explained_and_no_alarm(tmp_path: Path) -> None:
    findings = found(Planted("clip_mostly_acts", toy(grpo("gspo", updates_per_batch=2, rate=0.01, **WIDE))), tmp_path)
    clip = next(finding for finding in findings if finding.rule == "clip_mostly_acts")
    assert clip.severity == "note"
    assert "ratio.kind = geometric" in clip.what
    assert "train.updates_per_batch = 1" in clip.advice
    assert {finding.severity for finding in findings} == {"note"}


@pytest.mark.slow
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


@pytest.mark.slow
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


# Healthy runs raise no alarm: the shipped experiments of all four domains, as they were recorded, and trained anew.


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
