"""An auxiliary term that is learnt while nothing is earned."""

from __future__ import annotations

import pytest
from tests.look.diagnosis.rule.test_advice import course

from groupwise_look.diagnosis import diagnose


@pytest.mark.parametrize(
    ("last", "gain", "evaluated", "said"),
    [
        pytest.param(0.02, 0.0, 0.5, True, id="learnt, and nothing earned"),
        pytest.param(0.05, 0.0, 0.5, False, id="half learnt"),
        pytest.param(0.02, 0.2, 0.5, False, id="the reward rises"),
        pytest.param(0.02, 0.0, 0.6, False, id="it is evaluated higher"),
        pytest.param(0.02, 0.0, None, False, id="it is not evaluated"),
    ],
)
def test_a_term_that_is_learnt_alone(last: float, gain: float, evaluated: float | None, said: bool) -> None:
    rows = course(num_steps=40, advantages_std=(0.7, 0.7), frac_reward_zero_std=(0.3, 0.3), reward_std=(0.4, 0.4))
    for place, row in enumerate(rows):
        row["reward"] = 0.5 + gain * (place >= 20) + 0.02 * (-1) ** place
        row["loss_sup"] = 0.1 if place < 5 else last
    before = {"step": 0, "stage": "grpo", "eval/a/reward": 0.5}
    if evaluated is not None:
        rows[-1]["eval/a/reward"] = evaluated
    assert ("policy_term_drowned" in {found.rule for found in diagnose([before, *rows])}) == said


@pytest.mark.parametrize("term", ["loss_sup", "loss_l2"])
def test_a_loss_that_falls_with_its_coefficient_or_has_no_targets_is_not_learnt(term: str) -> None:
    rows = course(num_steps=40, advantages_std=(0.7, 0.7), frac_reward_zero_std=(0.3, 0.3), reward_std=(0.4, 0.4))
    for place, row in enumerate(rows):
        share = max(0.05, 1 - place / 20)
        row |= {"reward": 0.5 + 0.02 * (-1) ** place, term: 0.1 * share}
        row |= {"lambda_sup": share} if term == "loss_sup" else {}
    rows[0]["eval/a/reward"] = rows[-1]["eval/a/reward"] = 0.5
    assert "policy_term_drowned" not in {found.rule for found in diagnose(rows)}
