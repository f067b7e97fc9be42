"""PPO's clip: pessimistic, with one bound each way."""

from __future__ import annotations

import pytest
from pydantic import ValidationError
from tests.objective.small import close, gradient, member_ratios

from groupwise.objective.trust import Clip
from groupwise.statistics import finish


def test_good_decisions_stop_above_and_bad_ones_below() -> None:
    decisions = member_ratios([1.1, 1.5, 0.5], [1.1, 1.5, 0.5], [1.5, 0.5, 1.0], advantage=[1.0, -1.0, 0.0])
    surrogate = Clip(low=0.2, high=0.3)(decisions.log_ratio, decisions)
    close(surrogate.value, [[1.1, 1.3, 0.5], [-1.1, -1.5, -0.8], [0.0, 0.0, 0.0]])
    close(gradient(surrogate.value, decisions), [[1.1, 0.0, 0.5], [-1.1, -1.5, 0.0], [0.0, 0.0, 0.0]])
    assert surrogate.alive.tolist() == [[True, False, True], [True, True, False], [True, True, True]]
    assert finish(surrogate.statistics) == pytest.approx(
        {"clip_ratio/low_mean": 1 / 9, "clip_ratio/high_mean": 1 / 9, "clip_ratio/region_mean": 2 / 9}
    )


def test_a_bound_is_positive() -> None:
    with pytest.raises(ValidationError, match="low"):
        Clip(low=-0.1)
