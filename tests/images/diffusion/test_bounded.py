"""No pass of a diffusion model is larger than its bound, without a key, and no result depends on the bound."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from tests.images.diffusion.small import EVERYTHING, gradient, nudge, sampled
from tests.images.diffusion.small import measured_domain as domain

from groupwise.config import ConfigError
from groupwise.domain import pass_sizes
from groupwise.domain.pass_sizes import MOST_ROWS, SAMPLING, UPDATE
from groupwise.records import Scored
from groupwise.streams import Streams

pytestmark = pytest.mark.usefixtures("quick_collection")

MANY = {"evaluation": {"num_prompts": 10, "num_images": 20}}


def rows_of_passes(diffusion: Any) -> list[int]:
    """The rows of every pass through the model, from now on."""
    rows: list[int] = []
    diffusion.module.register_forward_pre_hook(lambda module, arguments: rows.append(len(arguments[0])))
    return rows


def bounded(monkeypatch: pytest.MonkeyPatch, rows: int, changes: dict[str, Any] | None = None) -> Any:
    """A domain whose passes without gradient are measured to `rows`."""
    monkeypatch.setattr("groupwise_images.diffusion.scorer.MOST_ROWS", rows)
    return domain(changes)


@pytest.mark.slow
def test_no_pass_of_an_evaluation_or_of_sampling_is_larger_than_the_bound() -> None:
    diffusion = domain(MANY)
    rows = rows_of_passes(diffusion)
    diffusion.evaluate(streams=Streams(0))
    assert max(rows) == MOST_ROWS < 200
    rows.clear()
    with torch.no_grad():
        sampled(diffusion, 5, 20)
    assert max(rows) == MOST_ROWS < 100


def test_what_is_evaluated_and_sampled_does_not_depend_on_the_sizes(monkeypatch: pytest.MonkeyPatch) -> None:
    whole = bounded(monkeypatch, 10_000, {"evaluation": {"num_prompts": 10, "num_images": 2}})
    cut = bounded(monkeypatch, 5, {"evaluation": {"num_prompts": 10, "num_images": 2}})
    expected, evaluation = (each.evaluate(streams=Streams(0)) for each in (whole, cut))
    # A pixel that lies between two of 256 levels may fall to either side.
    assert evaluation.metrics == pytest.approx(expected.metrics, abs=1e-3)
    assert [record["key"] for record in evaluation.records] == [record["key"] for record in expected.records]
    with torch.no_grad():
        samples, other = sampled(whole, 3, 4), sampled(cut, 3, 4)
    torch.testing.assert_close(other.old_log_prob, samples.old_log_prob, rtol=0, atol=1e-11)
    torch.testing.assert_close(other.payload["visited"], samples.payload["visited"], rtol=0, atol=1e-11)
    for name, value in samples.recorded.tensors().items():
        torch.testing.assert_close(other.recorded.tensors()[name], value, rtol=0, atol=1e-9, msg=name)
    with torch.no_grad():
        scored, again = (each.score(samples, torch.arange(12), EVERYTHING) for each in (whole, cut))
    torch.testing.assert_close(again.log_prob, scored.log_prob, rtol=0, atol=1e-11)


def test_an_update_is_cut_by_what_fits_and_its_gradient_is_the_whole_one(monkeypatch: pytest.MonkeyPatch) -> None:
    whole = domain()
    whole.fit_passes()
    per_row = pass_sizes.CPU_BYTES / whole.pass_sizes.rows(UPDATE)
    monkeypatch.setattr(pass_sizes, "CPU_BYTES", int(7.5 * per_row))
    cut = domain()
    gradients, passes = [], []
    for diffusion in (whole, cut):
        with torch.no_grad():
            samples = sampled(diffusion, 3, 4)
        nudge(diffusion)
        rows = rows_of_passes(diffusion)
        ones = torch.ones(12, 3, dtype=torch.float64)
        diffusion.backward(samples, torch.arange(12), Scored(ones, exact_divergence=ones))
        gradients.append(gradient(diffusion).clone())
        diffusion.module.zero_grad()
        diffusion.score(samples, torch.arange(12), EVERYTHING).log_prob.sum().backward()
        gradients.append(gradient(diffusion).clone())
        passes.append(max(rows))
    size = cut.pass_sizes.rows(UPDATE)
    assert passes == [36, size]
    assert 1 <= size < 12
    for first, second in zip(gradients[:2], gradients[2:], strict=True):
        torch.testing.assert_close(second, first, rtol=1e-9, atol=1e-9)


def test_an_evaluation_lets_images_go_once_they_are_judged(monkeypatch: pytest.MonkeyPatch) -> None:
    settings = {"evaluation": {"num_prompts": 10, "num_images": 2, "num_rows": 3, "num_records": 3}}
    expected = domain(settings).evaluate(streams=Streams(0))
    monkeypatch.setattr("groupwise_images.diffusion.domain.prompts_at_once", lambda num_images, elements: 4)
    diffusion = domain(settings)
    judged = diffusion._judged(list(enumerate(diffusion._splits.evaluated[:10])))
    assert sorted(judged.shown) == list(range(2 * 3)), "of 20"
    assert all(image.untyped_storage().nbytes() == image.numel() for image in judged.shown.values())
    evaluation = diffusion.evaluate(streams=Streams(0))
    assert evaluation.metrics == pytest.approx(expected.metrics, abs=1e-3)
    assert [record["key"] for record in evaluation.records] == [record["key"] for record in expected.records]
    assert ["image" in record for record in evaluation.records] == [True] * 3 + [False] * 17
    assert evaluation.pictures["images"].shape == expected.pictures["images"].shape


def failing(diffusion: Any, most: int) -> None:
    """Lets memory run out in every pass of more than so many rows."""

    def check(module: Any, arguments: Any) -> None:
        if len(arguments[0]) > most:
            raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 20.00 GiB")

    diffusion.module.register_forward_pre_hook(check)


def test_memory_that_runs_out_ends_in_smaller_passes_everywhere() -> None:
    few = {"evaluation": {"num_prompts": 2, "num_images": 6}}
    usual, narrow = domain(few), domain(few)
    narrow.fit_passes()
    failing(narrow, 5)
    evaluations = [each.evaluate(streams=Streams(0)) for each in (usual, narrow)]
    assert evaluations[1].metrics == pytest.approx(evaluations[0].metrics, abs=1e-3)
    assert narrow.pass_sizes.rows(SAMPLING) <= 5
    # With gradients on, the sampler tries to store its graph, and does without it.
    samples = [sampled(each, 3, 4) for each in (usual, narrow)]
    torch.testing.assert_close(samples[1].old_log_prob, samples[0].old_log_prob, rtol=0, atol=1e-11)
    assert narrow._sampler_graph is None


def test_memory_for_not_even_one_image_names_keys_of_this_domain() -> None:
    diffusion = domain()
    diffusion.fit_passes()
    failing(diffusion, 0)
    with pytest.raises(ConfigError, match=r"pass of one image .*write domain\.model\.dtype") as caught:
        diffusion.evaluate(streams=Streams(0))
    assert "completion" not in str(caught.value)
    assert "\n" not in str(caught.value)
    assert "domain.transitions_at_once" in diffusion.memory_remedy
