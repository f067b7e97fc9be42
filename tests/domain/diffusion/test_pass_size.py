"""Passes without gradient are bounded, take half where memory runs out, and give the same."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from tests.domain.diffusion.small import domain
from torch import Tensor

from groupwise.config import ConfigError
from groupwise.domain.diffusion import pass_size
from groupwise.domain.diffusion.pass_size import PassSize
from groupwise.streams import Streams


def counting(diffusion: Any) -> list[int]:
    """The rows of every pass through the model, from now on."""
    rows: list[int] = []
    diffusion.module.register_forward_pre_hook(lambda module, arguments: rows.append(len(arguments[0])))
    return rows


def test_no_pass_of_an_evaluation_is_larger_than_the_bound_and_nothing_changes(monkeypatch: pytest.MonkeyPatch) -> None:
    whole = domain({"evaluation": {"num_prompts": 10, "num_images": 2}})
    expected = whole.evaluate(streams=Streams(0))
    elements = whole._elements
    monkeypatch.setattr(pass_size, "MOST_ELEMENTS", 5 * elements)
    bounded = domain({"evaluation": {"num_prompts": 10, "num_images": 2}})
    rows = counting(bounded)
    evaluation = bounded.evaluate(streams=Streams(0))
    assert max(rows) == 4, "two prompts of two images"
    assert evaluation.metrics == pytest.approx(expected.metrics, abs=1e-6)
    assert [record["key"] for record in evaluation.records] == [record["key"] for record in expected.records]


def test_no_pass_of_sampling_is_larger_than_the_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    whole = domain()
    prompts = whole.prompts(range(3))
    with torch.no_grad():
        expected = whole.sample(
            prompts, 4, streams=Streams(0), step=0, settings={}, requires=frozenset({"exact_divergence"})
        )
    monkeypatch.setattr(pass_size, "MOST_ELEMENTS", 5 * whole._elements)
    bounded = domain()
    rows = counting(bounded)
    samples = bounded.sample(
        prompts, 4, streams=Streams(0), step=0, settings={}, requires=frozenset({"exact_divergence"})
    )
    assert max(rows) <= 5
    torch.testing.assert_close(samples.old_log_prob, expected.old_log_prob)


def exhausted(most: int) -> tuple[list[int], Any]:
    """A computation that has memory for so many rows, and the sizes that it was called with."""
    sizes: list[int] = []

    def compute(rows: Tensor) -> Tensor:
        sizes.append(len(rows))
        if len(rows) > most:
            raise RuntimeError("CUDA out of memory. Tried to allocate 2.00 GiB")
        return 10 * rows

    return sizes, compute


def test_memory_that_runs_out_halves_the_passes_from_then_on() -> None:
    sizes, compute = exhausted(3)
    size = PassSize(None, pass_size.MOST_ELEMENTS // 8)
    with torch.no_grad():
        assert size.join(compute, torch.arange(11)).tolist() == [10 * row for row in range(11)]
        assert sizes == [8, 4, 2, 2, 2, 2, 2, 1]
        sizes.clear()
        assert size.join(compute, torch.arange(4)).tolist() == [0, 10, 20, 30]
    assert sizes == [2, 2], "what fitted is remembered"


def test_memory_that_does_not_hold_one_row_is_one_line() -> None:
    _, compute = exhausted(0)
    with torch.no_grad(), pytest.raises(ConfigError, match=r"forward pass of one image; write .*domain\.model\.dtype"):
        PassSize(4, 1).join(compute, torch.arange(4))


def test_another_error_is_not_taken_for_memory() -> None:
    def fails(rows: Tensor) -> Tensor:
        raise RuntimeError("sizes differ")

    with torch.no_grad(), pytest.raises(RuntimeError, match="sizes differ"):
        PassSize(4, 1).join(fails, torch.arange(4))


def test_a_pass_with_a_gradient_is_whole_unless_its_size_is_stated() -> None:
    sizes, compute = exhausted(100)
    PassSize(None, pass_size.MOST_ELEMENTS).join(compute, torch.arange(6))
    PassSize(4, 1).join(compute, torch.arange(6))
    assert sizes == [6, 4, 2]


def test_no_rows_are_one_empty_pass() -> None:
    sizes, compute = exhausted(1)
    with torch.no_grad():
        assert PassSize(None, 1).join(compute, torch.arange(0)).shape == (0,)
    assert sizes == [0]
