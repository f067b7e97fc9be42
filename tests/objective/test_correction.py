"""IcePop: decisions outside the interval do not train, the others keep their weight."""

from __future__ import annotations

import pytest
import torch
from tests.objective.small import close

from groupwise.objective.correction import (
    Interval,
    Mask,
    Truncate,
    decision_weight,
    mean_weight,
    member_weight,
)


def test_outside_is_zero() -> None:
    log_weight = torch.tensor([[0.4, 0.6, 4.0, 6.0]], dtype=torch.float64).log()
    close(Interval(lower=0.5, upper=5.0)(log_weight, torch.ones(1, 4, dtype=torch.bool)), [[0.0, 0.6, 4.0, 0.0]])


def test_both_ends_belong_to_it() -> None:
    ones, mask = torch.zeros(1, 1, dtype=torch.float64), torch.ones(1, 1, dtype=torch.bool)
    assert Interval(lower=1.0, upper=2.0)(ones, mask).item() == 1.0
    assert Interval(lower=0.5, upper=1.0)(ones, mask).item() == 1.0


# MIS: whole members whose product of weights is too large do not train.


# Products 3, 0.75 and, the masked 100 left out, 1.9.
WEIGHT = torch.tensor([[2.0, 1.5], [1.5, 0.5], [1.9, 100.0]], dtype=torch.float64).log()
VALID = torch.tensor([[True, True], [True, True], [True, False]])


def test_a_member_is_kept_or_dropped_whole_and_survivors_keep_their_weights() -> None:
    close(torch.where(VALID, Mask(maximum=2.0)(WEIGHT, VALID), 0.0), [[0.0, 0.0], [1.5, 0.5], [1.9, 0.0]])


def test_survivors_weigh_what_is_asked_for() -> None:
    close(
        torch.where(VALID, Mask(maximum=2.0, weight="product")(WEIGHT, VALID), 0.0),
        [[0.0, 0.0], [0.75, 0.75], [1.9, 0.0]],
    )
    close(
        torch.where(VALID, Mask(maximum=2.0, weight="one")(WEIGHT, VALID), 0.0),
        [[0.0, 0.0], [1.0, 1.0], [1.0, 0.0]],
    )
    close(
        torch.where(VALID, Mask(maximum=2.0, truncate=1.25)(WEIGHT, VALID), 0.0),
        [[0.0, 0.0], [1.25, 0.5], [1.25, 0.0]],
    )
    close(
        torch.where(VALID, Mask(minimum=1.0, maximum=4.0)(WEIGHT, VALID), 0.0),
        [[2.0, 1.5], [0.0, 0.0], [1.9, 0.0]],
    )


def test_the_mean_does_not_grow_with_the_length() -> None:
    # Geometric means sqrt 3 = 1.73, sqrt .75 = .87 and 1.9; a member without decisions has 1.
    mean = Mask(by="mean", minimum=0.8, maximum=1.75, weight="one")
    close(torch.where(VALID, mean(WEIGHT, VALID), 0.0), [[1.0, 1.0], [1.0, 1.0], [0.0, 0.0]])
    weight = torch.full((2, 1000), 1.01, dtype=torch.float64).log()
    where = torch.arange(1000)[None] < torch.tensor([[1000], [1]])
    assert mean(weight, where)[:, 0].tolist() == [1.0, 1.0]
    assert Mask(maximum=2.0)(weight, where)[:, 0].tolist() == [0.0, pytest.approx(1.01)]
    assert mean(weight[:1], torch.zeros(1, 1000, dtype=torch.bool)).tolist() == [[1.0] * 1000]


def test_a_product_beyond_every_number_is_held() -> None:
    weight, where = torch.full((1, 4), 300.0), torch.ones(1, 4, dtype=torch.bool)
    assert Mask(maximum=1e34, weight="product")(weight, where).tolist() == [[0.0] * 4]
    assert bool(Mask(maximum=1e38, weight="product")(weight, where).isfinite().all())


# No correction weighs one.


# TIS: the weight of each decision, bounded above.


def test_min_of_weight_and_maximum() -> None:
    log_weight = torch.tensor([[3.0, 1.5, 0.25]], dtype=torch.float64).log()
    close(Truncate(maximum=2.0)(log_weight, torch.ones(1, 3, dtype=torch.bool)), [[2.0, 1.5, 0.25]])
    assert Truncate.reads == {"behaviour_log_prob"}


def test_a_lower_bound() -> None:
    log_weight = torch.tensor([[3.0, 1.5, 0.25]], dtype=torch.float64).log()
    close(Truncate(minimum=0.5)(log_weight, torch.ones(1, 3, dtype=torch.bool)), [[2.0, 1.5, 0.5]])
    with pytest.raises(ValueError, match=r"minimum \(2.0\) must be below maximum \(2.0\)"):
        Truncate(minimum=2.0)


def test_a_member_s_decisions_weigh_its_product() -> None:
    # Products 1.125 and, the masked 100 left out, 3.
    log_weight = torch.tensor([[3.0, 1.5, 0.25], [1.5, 2.0, 100.0]], dtype=torch.float64).log()
    mask = torch.tensor([[True] * 3, [True, True, False]])
    close(torch.where(mask, Truncate(level="member")(log_weight, mask), 0.0), [[1.125] * 3, [2.0, 2.0, 0.0]])
    close(
        torch.where(mask, Truncate(level="member", minimum=1.5, maximum=9.0)(log_weight, mask), 0.0),
        [[1.5] * 3, [3.0, 3.0, 0.0]],
    )


# The weights that corrections bound: of a decision, of a member, of its decisions on average.


LOG = torch.tensor([[2.0, 8.0, 5.0], [0.5, 3.0, 3.0], [7.0, 7.0, 7.0]], dtype=torch.float64).log()
MASK = torch.tensor([[True, True, False], [True, False, False], [False, False, False]])


def test_by_hand() -> None:
    close(decision_weight(LOG), [[2.0, 8.0, 5.0], [0.5, 3.0, 3.0], [7.0, 7.0, 7.0]])
    close(member_weight(LOG, MASK), [[16.0], [0.5], [1.0]])
    close(mean_weight(LOG, MASK), [[4.0], [0.5], [1.0]])
