from __future__ import annotations

import pytest
import torch

from groupwise.config import ConfigError
from groupwise_images.restoration.network import CallableNetwork, NAFBlock, NAFNet


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


@pytest.mark.parametrize(
    ("path", "arguments", "message"),
    [
        ("nowhere_at_all:Net", {}, "the module 'nowhere_at_all' cannot be imported: ModuleNotFoundError"),
        ("torch.nn:NoSuchThing", {}, "'torch.nn' has no 'NoSuchThing'"),
        ("torch.nn:Linear", {}, r"does not take arguments = \{\}: missing a required argument: 'in_features'"),
        ("math:sqrt", {"x": 1}, "does not take arguments = {'x': 1}"),
        ("builtins:dict", {}, "it makes a dict; it has to make a torch.nn.Module"),
    ],
)
def test_an_object_that_is_no_network_is_refused(path: str, arguments: dict[str, int], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        CallableNetwork(path=path, arguments=arguments).build()
