"""Slices are joined to the whole, and none is held while a later one is computed."""

from __future__ import annotations

import weakref
from collections.abc import Iterator

import pytest
import torch
from torch import Tensor

from groupwise.domain.pass_sizes import SAMPLING, PassSizes, joined, joined_rows

VALUES = torch.arange(14, dtype=torch.float64).view(7, 2)


@pytest.mark.parametrize("size", [1, 3, 7, 9])
def test_slices_are_joined_in_order(size: int) -> None:
    parts = [{"a": part, "b": part[:, 0] > 4} for part in VALUES.split(size)]
    whole = joined_rows(iter(parts), 7)
    assert torch.equal(whole["a"], VALUES)
    assert torch.equal(whole["b"], VALUES[:, 0] > 4)


def test_no_rows_are_one_empty_part() -> None:
    assert joined([VALUES[:0]], 0).shape == (0, 2)


def test_a_gradient_flows_to_every_slice() -> None:
    leaf = VALUES.clone().requires_grad_()
    joined([part.square() for part in leaf.split(3)], 7).sum().backward()
    assert leaf.grad is not None
    torch.testing.assert_close(leaf.grad, 2 * VALUES)


def test_a_slice_is_let_go_before_the_next_one_is_computed() -> None:
    """Of three passes of a kind, the results of the first two are gone once the third begins."""
    results: list[weakref.ref[Tensor]] = []

    def compute(rows: Tensor) -> Tensor:
        assert [reference() for reference in results] == [None] * len(results)
        result = 2 * VALUES[rows]
        results.append(weakref.ref(result))
        return result

    def through(parts: Iterator[Tensor]) -> Tensor:
        return joined(parts, 7)

    doubled = through(PassSizes({SAMPLING: 3}).each(SAMPLING, compute, torch.arange(7)))
    assert torch.equal(doubled, 2 * VALUES)
    assert len(results) == 3


def test_gradients_are_on_for_whoever_takes_the_results() -> None:
    enabled = [torch.is_grad_enabled() for _ in PassSizes().each(SAMPLING, lambda rows: rows, torch.arange(2))]
    assert enabled == [True, True]
