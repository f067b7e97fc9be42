"""The pessimistic clip by hand."""

from __future__ import annotations

from tests.objective.small import close, gradient, member_ratios

from groupwise.objective.clipping import clip_shares, clipped
from groupwise.statistics import finish


def test_only_the_pessimistic_side_is_held() -> None:
    given = member_ratios([1.5, 0.5], [1.5, 0.5], [1.5, 0.5], advantage=[1.0, -2.0, 0.0])
    value, too_low, too_high = clipped(given.log_ratio, given, low=0.1, high=0.3)
    close(value, [[1.3, 0.5], [-3.0, -1.8], [0.0, 0.0]])
    close(gradient(value, given), [[0.0, 0.5], [-3.0, 0.0], [0.0, 0.0]])
    assert too_low.tolist() == [[False, False], [False, True], [False, False]]
    assert too_high.tolist() == [[True, False], [False, False], [False, False]]


def test_each_side_has_its_own_width() -> None:
    # Between the two widths: 0.8 lies below 1 - 0.1 and not below 1 - 0.3, 1.2 lies above neither 1 + 0.3.
    given = member_ratios([1.2, 1.4, 0.8], [1.2, 0.8, 0.95], [1.2, 0.5, None], advantage=[1.0, -1.0, -1.0])
    value, too_low, too_high = clipped(given.log_ratio, given, low=0.1, high=0.3)
    close(given.masked(value), [[1.2, 1.3, 0.8], [-1.2, -0.9, -0.95], [-1.2, -0.9, 0.0]])
    close(gradient(value, given), [[1.2, 0.0, 0.8], [-1.2, 0.0, -0.95], [-1.2, 0.0, 0.0]])
    shares = {"clip_ratio/low_mean": 2 / 8, "clip_ratio/high_mean": 1 / 8, "clip_ratio/region_mean": 3 / 8}
    assert finish(clip_shares(too_low, too_high, given)) == shares
