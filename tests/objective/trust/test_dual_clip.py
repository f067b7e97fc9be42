"""Dual clip: a floor under the surrogate of bad decisions."""

from __future__ import annotations

import pytest
from pydantic import ValidationError
from tests.objective.small import close, gradient, member_ratios

from groupwise.objective.trust import DualClip
from groupwise.statistics import finish


def test_bad_decisions_beyond_the_bound_are_constant() -> None:
    decisions = member_ratios([5.0, 2.5, 0.5], [5.0, 2.5, 0.5], advantage=[-2.0, 2.0])
    surrogate = DualClip(low=0.2, high=0.2, bound=3.0)(decisions.log_ratio, decisions)
    close(surrogate.value, [[-6.0, -5.0, -1.6], [2.4, 2.4, 1.0]])
    close(gradient(surrogate.value, decisions), [[0.0, -5.0, 0.0], [0.0, 0.0, 1.0]])
    assert surrogate.alive.tolist() == [[False, True, False], [False, False, True]]
    assert finish(surrogate.statistics)["clip_ratio/dual_mean"] == pytest.approx(1 / 6)


def test_the_bound_exceeds_one() -> None:
    with pytest.raises(ValidationError, match="bound"):
        DualClip(bound=1.0)
