"""Backpropagation through a loss of the user's own."""

from __future__ import annotations

import pytest
import torch
from tests.images.restoration.small import domain

from groupwise.config import ConfigError
from groupwise.streams import Streams

PATH = "tests.images.restoration.test_differentiable"


def too_bright(images: torch.Tensor, label: list[int], level: float = 0.0) -> torch.Tensor:
    assert len(label) == len(images)
    return (images - level).square().flatten(1).mean(1)


def detached(images: torch.Tensor) -> torch.Tensor:
    return images.detach().flatten(1).mean(1)


def of_the_batch(images: torch.Tensor) -> torch.Tensor:
    return images.mean()


def failing(images: torch.Tensor) -> torch.Tensor:
    raise RuntimeError("no such word")


def endless(images: torch.Tensor) -> torch.Tensor:
    return images.flatten(1).mean(1) / 0


def test_the_loss_is_added_to_the_distance_and_its_gradient_reaches_the_network() -> None:
    losses = []
    for settings in (
        {},
        {"differentiable": {"path": f"{PATH}:too_bright", "weight": 2.0, "arguments": {"level": 0.3}}},
    ):
        opened = domain({"supervised": "l2", **settings})
        samples = opened.demonstrations(4, streams=Streams(0), step=1)
        rows = torch.tensor([2, 0])
        losses.append(opened.score(samples, rows, frozenset({"log_prob"})).auxiliary["supervised"])
    output = opened.module(samples.payload["degraded"][rows])
    assert torch.allclose(losses[1] - losses[0], 2 * (output - 0.3).square().flatten(1).mean(1), atol=1e-6)
    losses[1].sum().backward()
    assert any(
        parameter.grad is not None and parameter.grad.abs().sum() > 0 for parameter in opened.module.parameters()
    )


@pytest.mark.parametrize(
    ("function", "message"),
    [
        ("detached", "its result has no gradient; compute it from the images with torch"),
        ("of_the_batch", r"it gave \[\]; give a tensor of \[1\], a number an image"),
        ("failing", "the function failed: RuntimeError: no such word"),
        ("endless", "it gave values that are not finite; give a finite number an image"),
        ("absent", "absent"),
    ],
)
def test_a_loss_that_is_none_is_refused_before_anything_is_trained(function: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        domain({"differentiable": {"path": f"{PATH}:{function}"}})
