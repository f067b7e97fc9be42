"""The reward less a number."""

from __future__ import annotations

from tests.objective.advantage.groups import advantages

from groupwise.objective.advantage import ConstantBaseline


def test_less_the_number_whatever_the_group() -> None:
    assert advantages(ConstantBaseline(value=0.5), [1.0, 1.0, 0.0], [0.5]) == [0.5, 0.5, -0.5, 0.0]


def test_missing_rewards_are_zero_and_the_bound_holds() -> None:
    assert advantages(ConstantBaseline(value=1.0, clip=2.0), [None, 9.0, -9.0]) == [0.0, 2.0, -2.0]
