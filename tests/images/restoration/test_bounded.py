"""No pass of a restoration network is larger than its bound, without a key, and no result depends on the bound."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
import torch
from tests.images.restoration.small import GATED, TABLE, UPSCALED, domain

from groupwise.config import ConfigError
from groupwise.domain.pass_sizes import EVALUATION, MOST_ROWS, SAMPLING, UPDATE
from groupwise.domain.protocol import CutsPasses
from groupwise.memory import peak_bytes
from groupwise.streams import Streams

pytestmark = pytest.mark.usefixtures("quick_collection")

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


CALLS: list[list[str]] = []


def counted(prompts: Sequence[str], completions: Sequence[Any]) -> list[float]:
    """The mean brightness; notes the images of each call."""
    CALLS.append(list(prompts))
    return [float(image.float().mean()) / 255 for image in completions]


COUNTED = {"counted": {"kind": "callable", "path": "tests.images.restoration.test_bounded:counted"}}


@pytest.mark.parametrize("table", [{**TABLE, "rewards": COUNTED}, {**UPSCALED, "rewards": COUNTED}])
def test_an_evaluation_in_parts_is_that_of_one(table: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    """Rewards see the repeats of an image together, and no more images than are held."""
    settings = {"num_images": 11, "repeats": 2, "num_columns": 7, "num_records": 9, "batch_size": 4}
    found = []
    for most in (1, 2**20):
        monkeypatch.setattr("groupwise_images.image_evaluation._MOST_ELEMENTS", most, raising=False)
        CALLS.clear()
        restoration = domain({"evaluation": settings}, table)
        found.append(restoration.evaluate(streams=Streams(0)))
        assert [len(call) for call in CALLS] == ([4, 4, 4, 4, 4, 2] if most == 1 else [22])
        assert [key for call in CALLS for key in call] == [pic.key for pic in restoration._held_out for _ in range(2)]
    parts, whole = found
    # Passes are the same ones: no number rounds otherwise.
    assert parts.metrics == whole.metrics
    assert [{**record, "image": None} for record in parts.records] == [
        {**record, "image": None} for record in whole.records
    ]
    assert ["image" in record for record in parts.records] == [True] * 9 + [False] * 13
    for record, other in zip(parts.records[:9], whole.records, strict=False):
        assert torch.equal(record["image"], other["image"])
    assert torch.equal(parts.pictures["images"], whole.pictures["images"])
    assert parts.pictures["images"].shape[1] == 52 + 7 * (96 + 2)


@pytest.mark.parametrize(
    "table", [pytest.param(TABLE, id="pixels"), pytest.param(GATED, id="gates", marks=pytest.mark.slow)]
)
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
