"""A learning rate whose schedule has ended."""

from __future__ import annotations

import pytest
from tests.diagnosis.rule.test_advice import course, finding

from groupwise.diagnosis import diagnose


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
