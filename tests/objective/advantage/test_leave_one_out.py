"""The reward less the mean of the other members."""

from __future__ import annotations

import pytest
from tests.objective.advantage.groups import advantages

from groupwise.objective.advantage import LeaveOneOut


def test_baseline_is_the_others() -> None:
    # 0 - (1 + 5) / 2, 1 - 5 / 2, 5 - 1 / 2; with one missing 2 - 6, 6 - 2.
    actual = advantages(LeaveOneOut(), [0.0, 1.0, 5.0], [2.0, None, 6.0], [0.1] * 3)
    assert actual == pytest.approx([-3.0, -1.5, 4.5, -4.0, 0.0, 4.0, 0.0, 0.0, 0.0])


def test_bound() -> None:
    assert advantages(LeaveOneOut(clip=2.0), [0.0, 1.0, 5.0]) == pytest.approx([-2.0, -1.5, 2.0])
