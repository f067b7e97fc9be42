"""Members that are shorter than sampled answers: a mask leaves something out, or the length limit cut them."""

from __future__ import annotations

import pytest
from tests.look.diagnosis.rule.test_advice import course

from groupwise_look.diagnosis import diagnose


@pytest.mark.parametrize(("cut", "limit", "said"), [(0.0, 2, True), (0.9, 2, False), (0.9, 8, True)])
def test_members_that_are_cut_off_are_short_for_that(cut: float, limit: int, said: bool) -> None:
    rows = course(num_steps=10, completions__mean_length=(2.0, 2.0), completions__clipped_ratio=(cut, cut))
    before = {"step": 0, "stage": "grpo", "eval/sampled/length": 8.0}
    settings = {"domain": {"sampling": {"max_new_tokens": limit}}}
    assert ("decisions_left_out" in {found.rule for found in diagnose([before, *rows], settings)}) == said
