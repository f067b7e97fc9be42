from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import nn

from groupwise.domain.pass_sizes import EVALUATION, PassSizes
from groupwise_images.restoration.config import TileConfig
from groupwise_images.restoration.network import Residual, Upscaling
from groupwise_images.restoration.tiles import restore, restore_tiled

TWO, THREE = (PassSizes({EVALUATION: number}) for number in (2, 3))


@pytest.mark.parametrize("size", [(40, 40), (61, 37), (16, 200), (17, 33)])
def test_a_network_that_sees_a_quarter_of_the_overlap_gives_what_it_gives_for_the_whole(size: tuple[int, int]) -> None:
    """Three convolutions of 3 x 3 see three pixels to each side."""
    torch.manual_seed(0)
    network = Residual(channels=3, width=4, depth=1).build().double()
    image = torch.rand(3, *size, dtype=torch.float64)
    with torch.no_grad():
        whole = network(image[None])[0]
        assert torch.allclose(
            restore_tiled(network, image, TileConfig(size=24, overlap=12), THREE),
            whole,
            atol=1e-12,
        )
        # With less than that the tiles' own edges are seen.
        assert (
            not torch.allclose(restore_tiled(network, image, TileConfig(size=16, overlap=4)), whole, atol=1e-6)
            or max(size) <= 16
        )


@pytest.mark.parametrize("size", [(40, 40), (61, 37), (16, 200)])
def test_tiles_of_a_network_that_enlarges_meet_where_its_pixels_do(size: tuple[int, int]) -> None:
    """Three convolutions and the cubic filter see five small pixels to each side at most."""
    torch.manual_seed(0)
    network = Upscaling(channels=1, width=4, depth=1, scale=3).build().double()
    with torch.no_grad():
        for parameter in network.parameters():
            parameter += 0.1 * torch.randn_like(parameter)
        image = torch.rand(1, *size, dtype=torch.float64)
        whole = network(image[None])[0]
        tiled = restore_tiled(network, image, TileConfig(size=32, overlap=16), THREE, scale=3)
    assert tiled.shape == (1, size[0] * 3, size[1] * 3)
    assert torch.allclose(tiled, whole, atol=1e-12)


def test_a_network_that_halves_is_given_multiples_and_what_it_adds_at_the_edge_is_cut() -> None:
    given: list[tuple[int, ...]] = []

    def halves(images: torch.Tensor) -> torch.Tensor:
        given.append(tuple(images.shape[2:]))
        return nn.functional.interpolate(nn.functional.avg_pool2d(images, 8), scale_factor=8)

    flat = [np.full((1, *size), 0.25, "float32") for size in ((13, 8), (100, 9))]
    found = restore(
        halves,
        flat,
        TileConfig(size=32, overlap=8, multiple=8),
        TWO,
        torch.device("cpu"),
        torch.float32,
    )  # type: ignore[arg-type]
    assert [each.shape for each in found] == [(1, 13, 8), (1, 100, 9)]
    assert all(np.allclose(each, 0.25) for each in found)
    assert set(given) == {(16, 8), (32, 16)}


def test_images_of_several_sizes_come_back_in_their_order() -> None:
    random = np.random.default_rng(0)
    images = [random.random((1, *size)).astype("float32") for size in ((8, 8), (30, 12), (8, 8), (12, 30))]
    found = restore(
        nn.Identity(),
        images,
        TileConfig(size=16, overlap=4),
        TWO,
        torch.device("cpu"),
        torch.float32,
    )
    for before, after in zip(images, found, strict=True):
        assert np.allclose(before, after, atol=1e-6)
