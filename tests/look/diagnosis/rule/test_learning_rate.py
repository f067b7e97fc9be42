"""A learning rate whose schedule has ended, whose steps make every term worse, or with whose rise the reward falls."""

from __future__ import annotations

import pytest
from tests.look.diagnosis.rule.test_advice import course, finding

from groupwise_look.diagnosis import diagnose
from groupwise_look.diagnosis.rule.optimisation import stands_still
from groupwise_look.diagnosis.stage import Stage


@pytest.mark.parametrize(("end", "severity"), [(0.5, "warning"), (0.9, "note")])
def test_a_rate_of_zero_is_named(end: float, severity: str) -> None:
    rows = course(num_steps=40, reward=(0.5, end))
    for place, row in enumerate(rows):
        row["learning_rate"] = 1e-3 if place < 2 else 0.0
    said = finding("learning_rate_too_low", rows)
    assert (said.severity, said.what) == (
        severity,
        "The learning rate has been 0 for 20 steps (0.001 in the first step).",
    )
    assert "num_steps" in said.advice


def test_a_schedule_that_ends_with_its_stage_is_no_fault() -> None:
    assert diagnose(course(num_steps=40, reward=(0.5, 0.5), learning_rate=(1e-3, 0.0))) == []


@pytest.mark.parametrize(
    ("loss", "change", "rate", "gain", "evaluated", "said"),
    [
        pytest.param(2.5, 3.0, 1.0, 0.0, 0.5, True, id="worse in every term"),
        pytest.param(1.5, 3.0, 1.0, 0.0, 0.5, False, id="the loss rises by half"),
        pytest.param(2.5, 1.0, 1.0, 0.0, 0.5, False, id="steps as large"),
        pytest.param(2.5, 3.0, 3.0, 0.0, 0.5, False, id="the rate rises as well"),
        pytest.param(2.5, 3.0, 1.0, 0.2, 0.5, False, id="the reward rises"),
        pytest.param(2.5, 3.0, 1.0, 0.0, 0.7, False, id="it is evaluated higher"),
    ],
)
def test_steps_that_grow_and_make_every_term_worse_are_too_large(
    loss: float, change: float, rate: float, gain: float, evaluated: float, said: bool
) -> None:
    rows = course(num_steps=60, reward_std=(0.4, 0.4))
    for place, row in enumerate(rows):
        late = place >= 10
        row["reward"] = 0.5 + gain * (place >= 30) + 0.02 * (-1) ** place
        row["loss_sup"] = 0.01 * (loss if late else 1)
        row["weights/change"] = 1e-3 * (change if late else 1)
        row["learning_rate"] = 1e-3 * (rate if late else 1)
    before = {"step": 0, "stage": "grpo", "eval/a/reward": 0.5}
    rows[-1]["eval/a/reward"] = evaluated
    assert ("learning_rate_too_high" in {found.rule for found in diagnose([before, *rows])}) == said


@pytest.mark.parametrize(("last", "end", "said"), [(0.1, 4e-3, True), (0.1, 1.5e-3, False), (0.5, 4e-3, False)])
def test_a_reward_that_falls_while_the_rate_rises(last: float, end: float, said: bool) -> None:
    rows = course(num_steps=60, reward_std=(0.4, 0.4))
    for place, row in enumerate(rows):
        row["reward"] = (0.6 if place < 20 else last) + 0.02 * (-1) ** place
        row["learning_rate"] = 1e-3 if place < 20 else end
    assert ("learning_rate_too_high" in {found.rule for found in diagnose(rows)}) == said


def test_a_policy_of_the_same_surprisal_whose_weights_have_moved_does_not_stand_still() -> None:
    def stands(change: float) -> bool:
        stage = Stage("grpo")
        for step in range(40):
            stage.add({"step": step, "surprisal": 0.5, "updates/taken": 1.0, "weights/change": change})
        return stands_still(stage)

    assert (stands(1e-4), stands(1e-3)) == (True, False)


@pytest.mark.parametrize(("change", "evaluated", "said"), [(0.3, 0.2, True), (0.3, 0.35, False), (0.01, 0.2, False)])
def test_an_update_that_breaks_the_policy_is_seen_in_evaluations_too(
    change: float, evaluated: float, said: bool
) -> None:
    rows = course(num_steps=20, reward=(0.3, 0.3), reward_std=(0.4, 0.4), weights__change=(change, 0.01))
    rows[-1]["eval/a/reward"] = evaluated
    before = {"step": 0, "stage": "grpo", "eval/a/reward": 0.5}
    assert ("learning_rate_too_high" in {found.rule for found in diagnose([before, *rows])}) == said
    # Without a spread nothing says how much of a fall is one.
    rows[0]["reward_std"] = 0.0
    assert "learning_rate_too_high" not in {found.rule for found in diagnose([before, *rows])}


def test_a_supervised_loss_that_grows_by_its_coefficient_is_no_worse() -> None:
    rows = course(num_steps=60, reward_std=(0.4, 0.4), weights__change=(1e-3, 3e-3), learning_rate=(1e-3, 1e-3))
    for place, row in enumerate(rows):
        coefficient = min(1.0, 0.1 + place / 30)
        row |= {"reward": 0.5 + 0.02 * (-1) ** place, "lambda_sup": coefficient, "loss_sup": 0.01 * coefficient}
    rows[0]["eval/a/reward"] = rows[-1]["eval/a/reward"] = 0.5
    assert "learning_rate_too_high" not in {found.rule for found in diagnose(rows)}
