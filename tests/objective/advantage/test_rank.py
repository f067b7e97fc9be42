"""The place in the group's order."""

from __future__ import annotations

import pytest
from tests.objective.advantage.groups import advantages

from groupwise.objective.advantage import Rank


def test_from_one_to_minus_one_with_average_ranks() -> None:
    # 3, 1, 1: ranks 0, 1.5, 1.5 of 2. 7, 8, 9, 10: ranks 3, 2, 1, 0 of 3.
    actual = advantages(Rank(), [3.0, 1.0, 1.0], [7.0, 8.0, 9.0, 10.0])
    assert actual == pytest.approx([1.0, -0.5, -0.5, -1.0, -1 / 3, 1 / 3, 1.0])


def test_flat_is_zero_and_the_missing_take_no_place() -> None:
    assert advantages(Rank(), [2.0, 2.0], [0.0, None, 5.0], [None, None]) == [0.0, 0.0, -1.0, 0.0, 1.0, 0.0, 0.0]


def test_ties_in_the_order_of_the_members_are_source_004_s() -> None:
    # Its code sorts twice: rewards 1, 3, 1 have the ranks 1, 0, 2; a flat group of three gets 1, 0, -1.
    actual = advantages(Rank(ties="order"), [1.0, 3.0, 1.0], [2.0, 2.0, 2.0], [0.0, None, 5.0], [4.0], [None, None])
    assert actual == [0.0, 1.0, -1.0, 1.0, 0.0, -1.0, -1.0, 0.0, 1.0, 0.0, 0.0, 0.0]
