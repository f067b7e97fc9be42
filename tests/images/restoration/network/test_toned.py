"""The network that sets tones."""

from __future__ import annotations

import pytest
import torch

from groupwise_images.restoration.network import Toned, TonedStack


def opened() -> TonedStack:
    torch.manual_seed(0)
    network = Toned(width=4, depth=1).build()
    assert isinstance(network, TonedStack)
    return network


def test_controls_of_one_half_are_the_plain_stack_exactly() -> None:
    network, images = opened(), torch.rand(2, 1, 8, 12)
    half = torch.full((2, 3), 0.5)
    assert torch.equal(network(images, controls=half), network.stack(images))
    assert torch.equal(network(images), network.stack(images))
    mode, concentration = network.controls(images)
    assert torch.equal(mode, half)
    assert torch.equal(concentration, torch.full((2, 3), 8.0))


@pytest.mark.parametrize("controls", [(1.0, 0.5, 0.5), (0.5, 0.9, 0.5), (0.5, 0.5, 1.0), (0.25, 0.75, 0.0)])
def test_the_tones_are_those_of_the_formula(controls: tuple[float, float, float]) -> None:
    network, images = opened().double(), torch.rand(1, 1, 6, 7, dtype=torch.float64)
    contrast, brightness, sharpness = (2 * value - 1 for value in controls)
    restored = network.stack(images)[0, 0]
    rows, columns = restored.shape
    expected = torch.empty_like(restored)
    for row in range(rows):
        for column in range(columns):
            around = [
                restored[min(max(row + down, 0), rows - 1), min(max(column + right, 0), columns - 1)]
                for down in (-1, 0, 1)
                for right in (-1, 0, 1)
            ]
            value = restored[row, column]
            value = value + sharpness * (value - sum(around) / 9)
            expected[row, column] = 0.5 + 4**contrast * (value - 0.5) + brightness / 2
    shown = network(images, controls=torch.tensor([controls], dtype=torch.float64))[0, 0]
    assert torch.allclose(shown, expected, rtol=0, atol=1e-12)


def test_a_policy_over_the_controls_leaves_the_restoration_alone() -> None:
    network = opened()
    mode, concentration = network.controls(torch.rand(2, 1, 8, 8))
    (mode.sum() + concentration.sum()).backward()
    assert all(parameter.grad is None for parameter in network.stack.parameters())
    assert network.head.weight.grad is not None
    assert network.head.weight.grad.abs().sum() > 0
