"""Prompts of which the policy reads the end alone."""

from __future__ import annotations

import pytest
from tests.look.diagnosis.rule.test_advice import course

from groupwise_look.diagnosis import diagnose, headline


@pytest.mark.parametrize(("share", "said"), [(1.0, True), (0.2, True), (0.1, False)])
def test_many_prompts_that_are_cut_are_said(share: float, said: bool) -> None:
    rows = course(num_steps=5, settings__truncated_prompts=(share, share), reward=(0.2, 0.2))
    assert ("prompts_truncated" in {finding.rule for finding in diagnose(rows)}) == said


def test_they_are_the_cause_of_a_reward_that_is_constant() -> None:
    rows = course(num_steps=40, settings__truncated_prompts=(1.0, 1.0), reward=(0.0, 0.0), reward_std=(0.0, 0.0))
    rows = [row | {"frac_reward_zero_std": 1.0} for row in rows]
    found = headline(diagnose(rows))
    assert found is not None
    assert found.cause.rule == "prompts_truncated"
    assert "all_flat" in {finding.rule for finding in found.consequences}
