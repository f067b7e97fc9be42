from __future__ import annotations

import pytest
import torch

from groupwise_images.restoration.network import NAFBlock, NAFNet


def test_nafnet_keeps_the_size_of_any_image() -> None:
    network = NAFNet(width=4, encoder=(1, 1), decoder=(1, 1)).build()
    for height, width in ((8, 8), (9, 13), (2, 3)):
        assert network(torch.rand(2, 3, height, width)).shape == (2, 3, height, width)


def test_a_fresh_naf_block_is_the_identity() -> None:
    block, value = NAFBlock(6), torch.rand(1, 6, 5, 5)
    assert torch.equal(block(value), value)


def test_levels_must_match() -> None:
    with pytest.raises(ValueError, match=r"decoder = \[1\] has 1 levels and encoder 2"):
        NAFNet(encoder=(1, 1), decoder=(1,))
