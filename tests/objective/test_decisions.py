"""Decisions: counts, positions and means over what is valid."""

from __future__ import annotations

from tests.objective.small import close, member_ratios


def test_positions_count_valid_decisions() -> None:
    given = member_ratios([2.0, None, 4.0], [None, None, None])
    assert given.count.tolist() == [[2.0], [1.0]]
    assert given.position[0, [0, 2]].tolist() == [0, 1]
    assert given.occupied.tolist() == [[True], [False]]
    close(given.mean(given.log_ratio.exp()), [[3.0], [0.0]])
    close(given.masked(given.log_ratio.exp(), fill=-1.0), [[2.0, -1.0, 4.0], [-1.0] * 3])
