"""A sharded module takes the weights of a whole one, which is never held twice."""

from __future__ import annotations

import pytest
import torch
from tests.learner.one_process import sharding
from torch import Tensor, nn

from groupwise.config import ConfigError
from groupwise.learner.shards import (
    copy_without_weights,
    gathered,
    inside,
    local_part,
    move_weights,
    process_mesh,
    shard_module,
)


class Tied(nn.Module):
    """A head that is the embedding, a layer between them, and a buffer."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding, self.layers, self.head = nn.Embedding(5, 4), nn.ModuleList([nn.Linear(4, 4)]), nn.Linear(4, 5)
        self.head.weight = self.embedding.weight
        self.register_buffer("scale", torch.tensor([2.0]))

    def forward(self, tokens: Tensor) -> Tensor:
        return self.head(self.layers[0](self.embedding(tokens))) * self.scale


def test_a_sharded_module_takes_the_weights_of_the_whole_one_and_leaves_it_none() -> None:
    whole = Tied()
    whole.layers[0].bias.requires_grad_(False)
    before = {name: value.clone() for name, value in whole.state_dict().items()}
    tokens = torch.tensor([0, 3])
    expected = whole(tokens)
    expected.square().sum().backward()
    gradient = whole.embedding.weight.grad.clone()
    whole.zero_grad()
    with sharding():
        copy = copy_without_weights(whole, whole)
        assert {parameter.device.type for parameter in copy.parameters()} == {"meta"}
        assert copy.head.weight is copy.embedding.weight
        mesh = process_mesh(torch.device("cpu"))
        shard_module(copy, copy.layers, mesh)
        move_weights(whole, copy, mesh)
        assert [parameter.numel() for parameter in whole.parameters()] == [0, 0, 0, 0]
        assert copy.head.weight is copy.embedding.weight
        assert [parameter.requires_grad for parameter in copy.parameters()] == [True, True, False, True]
        assert {
            name: local_part(value).equal(before[name]) for name, value in copy.state_dict().items()
        } == dict.fromkeys(before, True)
        result = copy(tokens)
        torch.testing.assert_close(result, expected.detach())
        result.square().sum().backward()
        torch.testing.assert_close(local_part(copy.embedding.weight.grad), gradient)
        # What an optimiser steps is what the next pass reads.
        optimiser = torch.optim.SGD(copy.parameters(), lr=0.1)
        optimiser.step()
        torch.testing.assert_close(local_part(copy.head.weight), before["embedding.weight"] - 0.1 * gradient)
        assert not torch.allclose(copy(tokens), expected.detach())


def test_a_layer_that_shares_a_weight_with_another_one_is_spread_with_the_whole() -> None:
    """Zamba2 calls one block in several of its layers."""
    whole = Tied()
    whole.layers = nn.ModuleList([nn.Linear(4, 4), nn.Linear(4, 4), nn.Linear(4, 4)])
    whole.layers[2].weight = whole.layers[0].weight
    tokens = torch.tensor([0, 3])

    def apply(module: nn.Module) -> Tensor:
        hidden = module.embedding(tokens)
        for layer in module.layers:
            hidden = layer(hidden).tanh()
        return module.head(hidden)

    expected = apply(whole)
    expected.square().sum().backward()
    gradient = whole.layers[0].weight.grad.clone()
    with sharding():
        copy = copy_without_weights(whole, whole)
        shard_module(copy, copy.layers, mesh := process_mesh(torch.device("cpu")))
        move_weights(whole, copy, mesh)
        result = inside(copy, lambda: apply(copy).clone())
        result.square().sum().backward()
        assert copy.layers[2].weight is copy.layers[0].weight
        torch.testing.assert_close(result.detach(), expected.detach())
        torch.testing.assert_close(local_part(copy.layers[0].weight.grad), gradient)


def test_a_process_that_needs_no_whole_weights_gathers_none() -> None:
    whole = Tied()
    expected = whole(torch.tensor([0, 3])).detach()
    with sharding():
        mesh = process_mesh(torch.device("cpu"))
        mixed = copy_without_weights(whole, whole)
        mixed.head.double()
        with pytest.raises(
            ConfigError, match="Tied trains weights of float32 and float64, and weights that are spread"
        ):
            shard_module(mixed, [mixed.head], mesh)
        copy = copy_without_weights(whole.double(), whole)
        shard_module(copy, copy.layers, mesh)
        move_weights(whole, copy, mesh)
        with gathered(copy, whole, torch.device("cpu"), here=False):
            assert [parameter.numel() for parameter in whole.parameters()] == [0, 0, 0, 0]
        with gathered(copy, whole, torch.device("cpu")):
            assert whole.head.weight.dtype == local_part(copy.head.weight).dtype == torch.float64
            torch.testing.assert_close(whole.float()(torch.tensor([0, 3])).detach(), expected)
