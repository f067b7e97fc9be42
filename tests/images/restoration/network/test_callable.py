from __future__ import annotations

import pytest

from groupwise.config import ConfigError, validate
from groupwise_images.restoration.network import CallableNetwork


@pytest.mark.parametrize(
    "path", ["networks.Restormer", "my folder.networks:Restormer", "a/b.py:Restormer", ":Restormer", "networks:"]
)
def test_what_is_no_import_path_is_told(path: str) -> None:
    with pytest.raises(ConfigError, match=r"is no import path; write package.module:name"):
        validate(CallableNetwork, {"kind": "callable", "path": path}, "test")


@pytest.mark.parametrize(
    ("path", "message"),
    [
        (
            "no_such_module:Net",
            r"'no_such_module' cannot be imported: ModuleNotFoundError: No module named 'no_such_module'; it must be",
        ),
        ("torch.nn:NoSuchLayer", r"'torch.nn' has no 'NoSuchLayer'"),
        (
            "torch.nn:Conv2d",
            r"does not take arguments = \{\}: missing a required argument: 'in_channels'",
        ),
        ("collections:OrderedDict", r"it makes a OrderedDict; it has to make a torch.nn.Module"),
    ],
)
def test_a_network_that_cannot_be_built_is_refused(path: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        CallableNetwork(path=path).build()
