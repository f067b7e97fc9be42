"""Log-probs that differ from the recorded ones: a fault beyond rounding alone."""

from __future__ import annotations

import pytest
from tests.look.diagnosis.rule.test_advice import course

from groupwise_look.diagnosis import diagnose

NARROW = {"objective": {"trust": {"kind": "clip", "low": 1e-6, "high": 1e-6}}}


@pytest.mark.parametrize(("gap", "rules"), [(1.2e-7, []), (9e-7, []), (2e-6, ["ratio_not_one"])])
def test_rounding_is_no_other_policy_however_narrow_the_region(gap: float, rules: list[str]) -> None:
    rows = course(sampling__rescoring_difference__mean=(gap, gap))
    assert [finding.rule for finding in diagnose(rows, NARROW)] == rules


def test_the_width_of_the_region_is_the_scale_beyond_rounding() -> None:
    rows = course(sampling__rescoring_difference__mean=(1e-3, 1e-3))
    assert diagnose(rows, {"objective": {"trust": {"low": 0.2, "high": 0.2}}}) == []
    assert [finding.rule for finding in diagnose(rows, {"objective": {"trust": {"low": 3e-4, "high": 4e-4}}})] == [
        "ratio_not_one"
    ]
