"""Innovation 2.5: geometrically falling credit."""

from __future__ import annotations

import pytest
from tests.objective.small import close, member_ratios

from groupwise.objective.credit import TemporalDecay
from groupwise.statistics import finish


def test_mean_one_over_valid_decisions() -> None:
    # gamma 0.5: 1, 1/2, 1/4 times 3 / (7/4); the hole neither decays nor is weighed.
    decisions = member_ratios([1.0, None, 1.0, 1.0], [1.0], [None])
    close(TemporalDecay(gamma=0.5)(decisions), [[12 / 7, 0.0, 6 / 7, 3 / 7], [1.0, 0.0, 0.0, 0.0], [0.0] * 4])


def test_raw_keeps_the_powers() -> None:
    close(TemporalDecay(gamma=0.5, raw=True)(member_ratios([1.0, 1.0, 1.0])), [[1.0, 0.5, 0.25]])


def test_metrics_are_means_over_members() -> None:
    # gamma 0.5: (4/3, 2/3) and (1): sums 2 and 1, first 4/3 and 1, last 2/3 and 1.
    decisions = member_ratios([None, 1.0, 1.0, None], [1.0], [None])
    credit = TemporalDecay(gamma=0.5)
    numbers = finish(credit.measure(credit(decisions), decisions))
    assert numbers == pytest.approx(
        {"temporal_decay/weight_sum": 1.5, "temporal_decay/first_weight": 7 / 6, "temporal_decay/last_weight": 5 / 6}
    )
