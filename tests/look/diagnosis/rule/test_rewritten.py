"""Weights that something else than the optimiser writes."""

from __future__ import annotations

import pytest
from tests.look.diagnosis.rule.test_advice import course

from groupwise_look.diagnosis import diagnose


@pytest.mark.parametrize(
    ("every", "num_steps", "said"), [(1, 5, True), (10, 40, True), (10, 20, False), (0, 40, False)]
)
def test_three_times_are_enough_however_far_apart(every: int, num_steps: int, said: bool) -> None:
    rows = course(num_steps=num_steps, weights__change=(0.01, 0.01))
    for row in rows:
        if every and row["step"] % every == 0:
            row["weights/rewritten"] = 0.002
    assert ("weights_rewritten" in {finding.rule for finding in diagnose(rows)}) == said
