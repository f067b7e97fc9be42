"""A clip is narrow where it stops more than half of what later updates of a batch could move."""

from __future__ import annotations

import pytest
from tests.look.diagnosis.rule.test_advice import course

from groupwise_look.diagnosis import diagnose


@pytest.mark.parametrize(("clipped", "said"), [(0.42, True), (0.36, False)])
def test_a_region_of_no_width_stops_more_than_half(clipped: float, said: bool) -> None:
    rows = course(num_steps=20, clip_ratio__region_mean=(clipped, clipped), on_policy_share=(0.25, 0.25))
    assert ("clip_mostly_acts" in {found.rule for found in diagnose(rows)}) == said
