"""Passes cut into as many rows as fit, and their results joined."""

from __future__ import annotations

import weakref
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch import Tensor

from groupwise.config import ConfigError
from groupwise.domain.pass_sizes import (
    SAMPLING,
    UPDATE,
    PassSizes,
    joined,
)
from groupwise_images.image_evaluation import as_pictures

CPU = torch.device("cpu")
pytestmark = pytest.mark.usefixtures("quick_collection")


def exhausted(most: int) -> tuple[list[int], Any]:
    """A computation that has memory for so many rows, and the sizes that it was called with."""
    sizes: list[int] = []

    def compute(rows: Tensor) -> Tensor:
        sizes.append(len(rows))
        if len(rows) > most:
            raise RuntimeError("CUDA out of memory. Tried to allocate 2.00 GiB")
        return 10 * rows

    return sizes, compute


def holding(fixed: int, per_row: int) -> Any:
    """A pass that holds so many bytes at once."""

    def run(num: int) -> None:
        torch.zeros(fixed + num * per_row, dtype=torch.uint8)

    return run


@pytest.mark.parametrize(
    ("fixed", "per_row", "budget", "rows"), [(0, 1000, 10_500, 10), (4000, 1000, 10_500, 6), (9000, 1000, 500, 1)]
)
def test_as_many_rows_as_the_budget_holds(fixed: int, per_row: int, budget: int, rows: int) -> None:
    sizes = PassSizes()
    sizes.measure(SAMPLING, holding(fixed, per_row), CPU, budget)
    assert sizes.rows(SAMPLING) == rows


def test_what_is_stated_or_restored_is_not_measured() -> None:
    def fails(num: int) -> None:
        raise AssertionError("measured all the same")

    sizes = PassSizes({SAMPLING: 3})
    sizes.restore({UPDATE: 7})
    sizes.measure(SAMPLING, fails, CPU, 1)
    sizes.measure(UPDATE, fails, CPU, 1)
    assert (sizes.rows(SAMPLING), sizes.rows(UPDATE)) == (3, 7)
    assert sizes.record() == {UPDATE: 7}, "what is stated belongs to the configuration"


def test_memory_that_runs_out_while_measuring_leaves_one_row() -> None:
    def run(num: int) -> None:
        if num > 1:
            raise MemoryError

    sizes = PassSizes()
    sizes.measure(SAMPLING, run, CPU, 2**30)
    assert sizes.rows(SAMPLING) == 1


def test_passes_that_processes_make_together_are_measured_with_rows_that_all_have_memory_for() -> None:
    sizes, asked = PassSizes(), list[int]()

    def agree(number: int) -> int:
        asked.append(number)
        return min(number, 2)

    sizes.measure(SAMPLING, holding(0, 1000), CPU, 10_500, agree=agree)
    sizes.measure(UPDATE, holding(0, 1000), CPU, 1_500, agree=agree)
    assert asked == [4, 1]
    assert (sizes.rows(SAMPLING), sizes.rows(UPDATE)) == (10, 1)


def test_memory_that_runs_out_in_a_pass_of_all_processes_is_no_size() -> None:
    def run(num: int) -> None:
        if num > 1:
            raise MemoryError

    sizes = PassSizes()
    with pytest.raises(MemoryError):
        sizes.measure(SAMPLING, run, CPU, 2**30, agree=lambda number: number)
    assert not sizes.knows(SAMPLING)


def test_memory_that_runs_out_halves_the_passes_from_then_on() -> None:
    called, compute = exhausted(3)
    sizes = PassSizes({SAMPLING: 8})
    assert torch.cat(sizes.join(SAMPLING, compute, torch.arange(11))).tolist() == [10 * row for row in range(11)]
    assert called == [8, 4, 2, 2, 2, 2, 2, 1]
    called.clear()
    assert torch.cat(sizes.join(SAMPLING, compute, torch.arange(4))).tolist() == [0, 10, 20, 30]
    assert called == [2, 2], "what fitted is remembered"
    assert sizes.record() == {SAMPLING: 2}, "and kept in the run"


def test_memory_that_does_not_hold_one_row_is_one_line() -> None:
    _, compute = exhausted(0)
    with pytest.raises(ConfigError, match=r"memory ran out in a pass of one image \(sampling\); write domain\.key"):
        PassSizes({SAMPLING: 4}, "domain.key").join(SAMPLING, compute, torch.arange(4))


def test_a_gradient_in_slices_is_the_whole_one_and_computes_each_slice_again() -> None:
    generator = torch.Generator().manual_seed(0)
    data = torch.randn(7, 3, generator=generator, dtype=torch.float64)
    gradients, calls = [], []
    for size in (7, 2):
        weight, called = torch.ones(3, dtype=torch.float64, requires_grad=True), []

        def compute(rows: Tensor, weight: Tensor = weight, called: list[int] = called) -> Tensor:
            called.append(len(rows))
            return (data[rows] @ weight).tanh()

        torch.cat(PassSizes({UPDATE: size}).with_gradient(compute, torch.arange(7))).square().sum().backward()
        gradients.append(weight.grad)
        calls.append(called)
    torch.testing.assert_close(gradients[1], gradients[0], rtol=1e-12, atol=1e-13)
    assert calls == [[7], [2, 2, 2, 1, 1, 2, 2, 2]]


# Slices are joined to the whole, and none is held while a later one is computed.


VALUES = torch.arange(14, dtype=torch.float64).view(7, 2)


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


# Images as 8 bits, by hand.


def test_levels_round_to_the_nearest_and_stay_inside() -> None:
    found = as_pictures(torch.tensor([-1.0, 0.2, 0.999, 2.0]).view(1, 1, 2, 2))
    assert found.dtype == torch.uint8
    assert found.flatten().tolist() == [0, 51, 255, 255]
    # Half a level up: 127.5 is 128, and a hair below it 127.
    assert as_pictures(torch.tensor([127.5 / 255, 127.4 / 255]).view(1, 1, 1, 2)).flatten().tolist() == [128, 127]


def test_colours_come_last_and_one_channel_has_no_axis() -> None:
    images = torch.stack([torch.full((4, 5), level / 255) for level in (10.0, 20.0, 30.0)])[None]
    found = as_pictures(images)
    assert found.shape == (1, 4, 5, 3)
    assert found[0, 1, 2].tolist() == [10, 20, 30]
    assert found.is_contiguous()
    assert as_pictures(images[:, :1]).shape == (1, 4, 5)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64])
def test_every_level_survives_the_way_there_and_back(dtype: torch.dtype) -> None:
    levels = torch.arange(256).view(1, 1, 16, 16)
    given = (levels.double() / 255).to(dtype)
    off = (as_pictures(given).long() - levels[:, 0]).abs().max()
    assert off <= (1 if dtype == torch.bfloat16 else 0), "eight bits of bfloat16 hold a level to within one"


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_what_is_not_finite_is_no_picture(value: float) -> None:
    images = torch.zeros(2, 1, 2, 2)
    images[1, 0, 1, 1] = value
    with pytest.raises(ConfigError, match="NaN or infinity"):
        as_pictures(images)
