"""No pass of a restoration network is larger than its bound, without a key, and no result depends on the bound."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from tests.domain.restoration.small import GATED, TABLE, domain, sampled

from groupwise.config import ConfigError
from groupwise.domain.pass_sizes import EVALUATION, MOST_ROWS, SAMPLING, UPDATE
from groupwise.domain.protocol import CutsPasses
from groupwise.memory import peak_bytes
from groupwise.streams import Streams

MANY = {"source": {"num_train": 100}, "num_train": 100, "evaluation": {"num_images": 100}}


def images_of_passes(restoration: Any) -> list[int]:
    """The images of every pass through the network, from now on."""
    counts: list[int] = []
    restoration.module.register_forward_pre_hook(lambda module, arguments: counts.append(len(arguments[0])))
    return counts


def drawn(restoration: Any, num_prompts: int = 12, group_size: int = 4) -> Any:
    return restoration.sample(
        restoration.prompts(range(num_prompts)),
        group_size,
        streams=Streams(0),
        step=0,
        settings={},
        requires=frozenset({"log_prob"}),
    )


@pytest.mark.parametrize("table", [TABLE, GATED], ids=["pixels", "gates"])
def test_no_pass_is_larger_than_the_bound(table: dict[str, Any]) -> None:
    restoration = domain(MANY, table)
    assert isinstance(restoration, CutsPasses)
    counts = images_of_passes(restoration)
    restoration.evaluate(streams=Streams(0))
    assert max(counts) == MOST_ROWS < 100
    counts.clear()
    drawn(restoration, 80)
    assert max(counts) == MOST_ROWS < 80


@pytest.mark.parametrize("table", [TABLE, GATED], ids=["pixels", "gates"])
def test_nothing_depends_on_the_sizes(table: dict[str, Any]) -> None:
    found = []
    for rows in (1000, 5):
        restoration = domain(None, table)
        restoration.pass_sizes.restore(dict.fromkeys((SAMPLING, UPDATE, EVALUATION), rows))
        counts = images_of_passes(restoration)
        evaluation = restoration.evaluate(streams=Streams(0))
        samples = restoration.with_reference(drawn(restoration))
        fields = restoration.score(samples, torch.arange(48), frozenset({"log_prob", "exact_divergence"}))
        sum(fields.tensors()[name].sum() for name in ("log_prob", "exact_divergence")).backward()  # type: ignore[union-attr]
        gradient = torch.cat([p.grad.flatten() for p in restoration.module.parameters() if p.grad is not None])
        found.append((evaluation.metrics, fields.log_prob.detach(), samples.old_log_prob, gradient))
        if rows == 5:
            assert max(counts) == 5
    assert found[1][0] == pytest.approx(found[0][0], abs=1e-5)
    for cut, whole in zip(found[1][1:], found[0][1:], strict=True):
        torch.testing.assert_close(cut, whole, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("table", [TABLE, GATED], ids=["pixels", "gates"])
def test_what_scoring_holds_does_not_grow_with_the_members(table: dict[str, Any]) -> None:
    """Beside its result, and the network's output for each group."""
    held = []
    for group_size in (8, 400):
        restoration = domain(None, table)
        restoration.pass_sizes.restore(dict.fromkeys((SAMPLING, UPDATE, EVALUATION), 8))
        samples = restoration.with_reference(drawn(restoration, 2, group_size))
        found: list[Any] = []

        def score(restoration: Any = restoration, samples: Any = samples, found: list[Any] = found) -> None:
            with torch.no_grad():
                rows = torch.arange(len(samples)).flip(0)
                found.append(restoration.score(samples, rows, frozenset({"log_prob", "exact_divergence"})))

        peak = peak_bytes(score, torch.device("cpu"))
        held.append(peak - sum(value.nbytes for value in found[0].tensors().values()))
    few, many = held
    # Places of members are some numbers each; an image has 512 bytes.
    assert many - few < 784 * 64, held


def test_memory_that_runs_out_ends_in_smaller_passes_or_in_one_line_with_keys_of_this_domain() -> None:
    usual, narrow, none = (domain(MANY) for _ in range(3))

    def fails_above(most: int) -> Any:
        def check(module: Any, arguments: Any) -> None:
            if len(arguments[0]) > most:
                raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 20.00 GiB")

        return check

    narrow.module.register_forward_pre_hook(fails_above(7))
    expected = usual.evaluate(streams=Streams(0)).metrics
    assert narrow.evaluate(streams=Streams(0)).metrics == pytest.approx(expected, abs=1e-5)
    assert narrow.pass_sizes.rows(EVALUATION) <= 7
    none.module.register_forward_pre_hook(fails_above(0))
    with pytest.raises(ConfigError, match=r"pass of one image \(evaluation\); write .*domain\.tile\.size"):
        none.evaluate(streams=Streams(0))


def test_a_stated_batch_size_stays() -> None:
    restoration = domain({**MANY, "evaluation": {"num_images": 100, "batch_size": 9}})
    counts = images_of_passes(restoration)
    restoration.evaluate(streams=Streams(0))
    assert max(counts) == 9


def test_members_are_scored_at_a_time_as_they_were_sampled() -> None:
    restoration = domain()
    samples = sampled(restoration)
    scored = restoration.score(samples, torch.arange(len(samples)), frozenset({"log_prob"}))
    torch.testing.assert_close(scored.log_prob, samples.old_log_prob, rtol=0, atol=1e-10)
