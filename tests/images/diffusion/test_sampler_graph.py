from __future__ import annotations

import pytest
import torch
from tests.images.diffusion.small import EVERYTHING, config, domain, gradient, nudge, sampled

from groupwise.domain.protocol import Samples
from groupwise.records import Scored
from groupwise.streams import Streams
from groupwise_images.diffusion.domain import DiffusionDomain

REQUIRES = EVERYTHING - {"entropy", "score_norm"}


def cotangents(rows: torch.Tensor) -> Scored:
    generator = torch.Generator().manual_seed(0)
    whole = torch.randn(3, 6, 3, generator=generator, dtype=torch.float64)
    return Scored(whole[0, rows], mean_shift=whole[1, rows], exact_divergence=whole[2, rows])


def forwards(given: DiffusionDomain) -> list[int]:
    sizes: list[int] = []
    given.module.register_forward_pre_hook(lambda module, inputs: sizes.append(len(inputs[0])))
    return sizes


@pytest.mark.parametrize("rows", [[0, 1, 2, 3, 4, 5], [5, 3, 1, 0, 2]])
def test_the_gradient_is_that_of_a_second_forward_pass(rows: list[int]) -> None:
    chosen = torch.tensor(rows)
    plain, kept = domain({"transitions_at_once": 18}), domain()
    expected, found = [], []
    for given, gathered in ((plain, expected), (kept, found)):
        samples = given.with_reference(
            given.sample(given.prompts(range(2)), 3, streams=Streams(0), step=0, settings={}, requires=REQUIRES)
        )
        # A reference that differs, so that the divergence has a gradient.
        samples.payload["reference_mean"].mul_(0.9)
        sizes = forwards(given)
        fields = given.backward(samples, chosen, cotangents(chosen))
        gathered += [gradient(given).clone(), len(sizes), fields]
    assert torch.allclose(found[0], expected[0], atol=1e-12)
    assert float(expected[0].abs().max()) > 1e-3
    assert (expected[1], found[1]) == (1, 0), "the kept graph runs the model no second time"
    for name, value in expected[2].tensors().items():
        assert torch.allclose(found[2].tensors()[name], value, atol=1e-12)


def test_a_graph_serves_once_and_only_the_weights_and_members_it_is_of() -> None:
    given = domain()
    rows = torch.arange(6)

    def used(samples: Samples, chosen: torch.Tensor = rows) -> bool:
        sizes = forwards(given)
        given.backward(samples, chosen, cotangents(chosen))
        return not sizes

    first = sampled(given)
    assert used(first)
    assert not used(first), "it is gone after its first use"
    old, new = sampled(given), sampled(given, step=1)
    assert not used(old), "a later call of the sampler took its place"
    second = sampled(given)
    nudge(given)
    assert not used(second), "the weights have changed"
    third = sampled(given)
    assert not used(third, rows[:4]), "for four of six members a second forward pass is as cheap"
    assert not used(Samples.concatenate([sampled(given, 1, 3), new.select(torch.arange(3))]))


def test_where_memory_is_saved_nothing_is_kept() -> None:
    given = domain()
    with torch.no_grad():
        sampled(given)
    assert given._sampler_graph is None
    sliced = given.adapted(config({"transitions_at_once": 100}))
    sampled(sliced)
    assert sliced._sampler_graph is None
    given.module.enable_gradient_checkpointing()
    sampled(given)
    assert given._sampler_graph is None
