"""Rejection sampling: one for what the reward accepts."""

from __future__ import annotations

from tests.objective.advantage.groups import advantages

from groupwise.objective.advantage import Accepted


def test_strictly_above_the_threshold() -> None:
    assert advantages(Accepted(threshold=0.5), [0.5, 0.6, None], [1.0, 1.0]) == [0.0, 1.0, 0.0, 1.0, 1.0]
