"""The hash of weights: it follows every tensor, its name, and nothing else."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import nn

from groupwise.learner.copy import hash_weights


def net() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(3, 2), nn.BatchNorm1d(2))


def _nudge(module: nn.Module) -> None:
    module[0].weight.data[1, 2] += 1e-7  # type: ignore[index]


def _count(module: nn.Module) -> None:
    module(torch.zeros(4, 3))  # a buffer: the running mean of the normalisation


def _other_type(module: nn.Module) -> None:
    module.double()


def _swap(module: nn.Module) -> None:
    module[0].weight.data = module[0].weight.data.flip(0)  # type: ignore[index]


@pytest.mark.parametrize("change", [_nudge, _count, _other_type, _swap])
def test_a_change_of_any_tensor_changes_it(change: Callable[[nn.Module], None]) -> None:
    module = net()
    before = hash_weights(module)
    change(module)
    assert hash_weights(module) != before


def test_bfloat16_and_scalars_are_hashed() -> None:
    module = nn.Linear(1, 1).to(torch.bfloat16)
    module.register_buffer("steps", torch.tensor(3))
    before = hash_weights(module)
    module.steps += 1
    assert hash_weights(module) != before
