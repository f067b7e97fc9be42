"""Group statistics of rewards: means, deviations and flatness with missing rewards."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
import torch
from tests.objective.small import close

from groupwise.objective.batch import Grouped, Running
from groupwise.objective.decisions import Counts


def _grouped() -> Grouped:
    """Group 0: 1, 3, (missing); group 1: 0.1 three times; group 2: one reward left of two."""
    value = torch.tensor([[1.0], [3.0], [0.0], [0.1], [0.1], [0.1], [5.0], [0.0]], dtype=torch.float64)
    present = torch.tensor([1, 1, 0, 1, 1, 1, 1, 0], dtype=torch.bool)[:, None]
    return Grouped(value, present, torch.tensor([0, 0, 0, 1, 1, 1, 2, 2]), 3, torch.ones(8, 1, dtype=torch.float64))


def test_statistics_are_over_present_rewards() -> None:
    grouped = _grouped()
    close(grouped.size[:, 0], [2.0, 2.0, 2.0, 3.0, 3.0, 3.0, 1.0, 1.0])
    close(grouped.mean[[0, 3, 6], 0], [2.0, 0.1, 5.0])
    close(grouped.std(1)[[0, 6], 0], [math.sqrt(2.0), 0.0])
    close(grouped.std(0)[0, 0], 1.0)


def test_flat_by_equality_not_by_size_of_the_deviation() -> None:
    grouped = _grouped()
    assert grouped.flat[:, 0].tolist() == [False] * 3 + [True] * 5
    close(grouped.compared(torch.full((8, 1), 7.0))[:, 0], [7.0, 7.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0])


def test_batch_moments_span_all_present_rewards() -> None:
    # 1, 3, 0.1, 0.1, 0.1, 5: mean 9.3 / 6 = 1.55; squares 1 + 9 + 0.03 + 25 - 6 * 1.55^2 = 20.615, over 5.
    count, mean, std = _grouped().batch_moments(_grouped().value)
    close(torch.stack([count, mean, std]), [6.0, 1.55, math.sqrt(20.615 / 5)])


def test_a_group_is_flat_within_the_rounding_of_fp32_or_what_is_set() -> None:
    digit = 2.0**-23
    values = [
        [17.3, 17.3 * (1 + 3 * digit), 17.3 * (1 - digit / 2)],
        [17.3, 17.3 * (1 + 5 * digit)],
        [-1e9, -1e9 + 400.0],
        [-1e9, -1e9 + 500.0],
        [1.0, 1.0 + 4e-15],
        [0.0, 1e-300],
        [0.0, 5e-324],
    ]
    assert Grouped.of(*values).group_flat[:, 0].tolist() == [True, False, True, False, True, False, True]
    finer = replace(Grouped.of(*values), rounding=1e-14)
    assert finer.group_flat[:, 0].tolist() == [False, False, False, False, True, False, True]


# Bias-corrected exponential averages of batch statistics.


def test_the_first_batch_is_exact_and_later_ones_fade_it() -> None:
    after_one = Running().follow(mean=2.0, std=4.0, centred_std=1.0, decay=0.5)
    assert (after_one.mean, after_one.std, after_one.centred_std) == (2.0, 4.0, 1.0)
    # (0.25 * 2 + 0.5 * 5) / 0.75 = 4, (0.25 * 1 + 0.5 * 7) / 0.75 = 5
    after_two = after_one.follow(mean=5.0, std=4.0, centred_std=7.0, decay=0.5)
    assert (after_two.mean, after_two.std, after_two.centred_std) == pytest.approx((4.0, 4.0, 5.0))
    assert (Running().mean, Running().std, Running().centred_std) == (0.0, 0.0, 0.0)


# Global counts: summed over processes, never zero.


def test_total_is_reduced_and_at_least_one() -> None:
    mask = torch.tensor([[True, False], [True, True]])
    members = torch.ones(2, dtype=torch.bool)
    counts = Counts(mask, members, members, torch.zeros(2, dtype=torch.long), 1, lambda total: total + 4)
    assert float(counts.total(mask)) == 7.0
    single_process = Counts(mask, members, members, torch.zeros(2, dtype=torch.long), 1, lambda total: total)
    assert float(single_process.total(torch.zeros(2, dtype=torch.bool))) == 1.0


# What the objective remembers: JSON-able, and exact after a round trip.
