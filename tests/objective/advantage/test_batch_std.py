"""The group's mean as baseline, the batch's deviation as scale."""

from __future__ import annotations

import math

import pytest
from tests.objective.advantage.groups import advantages, grouped

from groupwise.objective.advantage import BatchStd
from groupwise.objective.batch import Running


def test_scale_is_of_all_rewards() -> None:
    # 0, 2, 4, 4: mean 2.5, squares 6.25 + 0.25 + 2.25 + 2.25 = 11 over 3.
    assert advantages(BatchStd(), [0.0, 2.0], [4.0, 4.0]) == pytest.approx(
        [-1 / math.sqrt(11 / 3), 1 / math.sqrt(11 / 3), 0.0, 0.0]
    )


def test_or_of_all_centred_rewards() -> None:
    # -1, 1, 0, 0: squares 2 over 3.
    assert advantages(BatchStd(of="advantage"), [0.0, 2.0], [4.0, 4.0]) == pytest.approx(
        [-math.sqrt(1.5), math.sqrt(1.5), 0.0, 0.0]
    )


def test_scale_is_over_all_processes() -> None:
    # Two processes with the same rewards 0, 2: squares 4 over 3.
    actual, _ = BatchStd()(grouped([0.0, 2.0], reduce=lambda total: 2 * total), Running())
    assert actual[:, 0].tolist() == pytest.approx([-math.sqrt(0.75), math.sqrt(0.75)])


def test_population_deviation() -> None:
    # 0, 2, 4, 4: squares 11 over 4.
    assert advantages(BatchStd(ddof=0), [0.0, 2.0], [4.0, 4.0])[:2] == pytest.approx(
        [-1 / math.sqrt(11 / 4), 1 / math.sqrt(11 / 4)]
    )
