from __future__ import annotations

import pytest

from groupwise.config import ConfigError, validate
from groupwise.domain.restoration.network import Custom


@pytest.mark.parametrize(
    "path", ["networks.Restormer", "my folder.networks:Restormer", "a/b.py:Restormer", ":Restormer", "networks:"]
)
def test_what_is_no_import_path_is_told(path: str) -> None:
    with pytest.raises(ConfigError, match=r"is no import path; write package.module:name"):
        validate(Custom, {"kind": "custom", "path": path}, "test")


@pytest.mark.parametrize(
    ("path", "message"),
    [
        (
            "no_such_module:Net",
            r"the module cannot be imported: ModuleNotFoundError: No module named 'no_such_module'",
        ),
        ("torch.nn:NoSuchLayer", r"AttributeError.*NoSuchLayer.*write package.module:Class and its arguments"),
        (
            "torch.nn:Conv2d",
            r"TypeError.*missing 3 required positional arguments.*write package.module:Class and its arguments",
        ),
        ("collections:OrderedDict", r"gave a OrderedDict; it must give a torch.nn.Module"),
    ],
)
def test_what_cannot_be_built_is_told(path: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        Custom(path=path).build()
