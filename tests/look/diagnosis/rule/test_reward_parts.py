"""A reward that drowns the others."""

from __future__ import annotations

import pytest
from tests.look.diagnosis.rule.test_advice import course, finding


@pytest.mark.parametrize(("share", "made"), [(0.97, "97.0%"), (1.004, "all")])
def test_no_reward_makes_more_than_all(share: float, made: str) -> None:
    """The others may pull the sum down where one is high: its share of the spread is then above one."""
    rows = course(
        rewards__right__share=(share, share),
        rewards__right__std=(0.4, 0.4),
        rewards__right__mean=(0.5, 0.5),
        rewards__right__weight=(1.0, 1.0),
        rewards__short__share=(1 - share, 1 - share),
        rewards__short__std=(0.1, 0.1),
        rewards__short__mean=(0.2, 0.2),
        rewards__short__weight=(0.1, 0.1),
    )
    assert f"Reward right makes {made} of what the members" in finding("reward_dominates", rows).what
