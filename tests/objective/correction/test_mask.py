"""MIS: whole members whose product of weights is too large do not train."""

from __future__ import annotations

import pytest
import torch
from tests.objective.small import close

from groupwise.objective.correction import Mask

# Products 3, 0.75 and, the masked 100 left out, 1.9.
WEIGHT = torch.tensor([[2.0, 1.5], [1.5, 0.5], [1.9, 100.0]], dtype=torch.float64).log()
MASK = torch.tensor([[True, True], [True, True], [True, False]])


def test_a_member_is_kept_or_dropped_whole_and_survivors_keep_their_weights() -> None:
    close(torch.where(MASK, Mask(maximum=2.0)(WEIGHT, MASK), 0.0), [[0.0, 0.0], [1.5, 0.5], [1.9, 0.0]])


def test_survivors_weigh_what_is_asked_for() -> None:
    close(
        torch.where(MASK, Mask(maximum=2.0, weight="product")(WEIGHT, MASK), 0.0),
        [[0.0, 0.0], [0.75, 0.75], [1.9, 0.0]],
    )
    close(torch.where(MASK, Mask(maximum=2.0, weight="one")(WEIGHT, MASK), 0.0), [[0.0, 0.0], [1.0, 1.0], [1.0, 0.0]])
    close(
        torch.where(MASK, Mask(maximum=2.0, truncate=1.25)(WEIGHT, MASK), 0.0), [[0.0, 0.0], [1.25, 0.5], [1.25, 0.0]]
    )
    close(torch.where(MASK, Mask(minimum=1.0, maximum=4.0)(WEIGHT, MASK), 0.0), [[2.0, 1.5], [0.0, 0.0], [1.9, 0.0]])


def test_the_mean_does_not_grow_with_the_length() -> None:
    # Geometric means sqrt 3 = 1.73, sqrt .75 = .87 and 1.9; a member without decisions has 1.
    mean = Mask(by="mean", minimum=0.8, maximum=1.75, weight="one")
    close(torch.where(MASK, mean(WEIGHT, MASK), 0.0), [[1.0, 1.0], [1.0, 1.0], [0.0, 0.0]])
    weight = torch.full((2, 1000), 1.01, dtype=torch.float64).log()
    where = torch.arange(1000)[None] < torch.tensor([[1000], [1]])
    assert mean(weight, where)[:, 0].tolist() == [1.0, 1.0]
    assert Mask(maximum=2.0)(weight, where)[:, 0].tolist() == [0.0, pytest.approx(1.01)]
    assert mean(weight[:1], torch.zeros(1, 1000, dtype=torch.bool)).tolist() == [[1.0] * 1000]


def test_a_product_beyond_every_number_is_held() -> None:
    weight, where = torch.full((1, 4), 300.0), torch.ones(1, 4, dtype=torch.bool)
    assert Mask(maximum=1e34, weight="product")(weight, where).tolist() == [[0.0] * 4]
    assert bool(Mask(maximum=1e38, weight="product")(weight, where).isfinite().all())


def test_bounds_in_the_wrong_order_are_refused() -> None:
    with pytest.raises(ValueError, match=r"minimum \(3.0\) must be below maximum \(2.0\)"):
        Mask(minimum=3.0)


def test_a_product_at_the_maximum_trains() -> None:
    close(Mask(maximum=1.0)(torch.zeros(1, 2, dtype=torch.float64), torch.ones(1, 2, dtype=torch.bool)), [[1.0, 1.0]])
