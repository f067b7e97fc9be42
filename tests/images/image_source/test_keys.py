"""Every source of images names, in its errors, the key under which it stands."""

from __future__ import annotations

import inspect
from pathlib import Path
from typing import Any

import pytest

from groupwise.config import ConfigError
from groupwise_images.image_source import Digits, Folder, Photographs, Table, Words


@pytest.mark.parametrize("source", [Digits, Folder, Photographs, Table, Words])
def test_every_source_is_told_its_key(source: Any) -> None:
    assert list(inspect.signature(source.read).parameters) == ["self", "key"]


def test_errors_name_the_key(tmp_path: Path) -> None:
    (tmp_path / "pairs.jsonl").write_text('{"image": "absent.png"}')
    wrong = [
        Words(fonts=("absent.ttf",)),
        Photographs(size=200, num_train=5000),
        Folder(clean=str(tmp_path / "absent")),
        Table(path=str(tmp_path / "absent.jsonl")),
    ]
    for source in wrong:
        with pytest.raises((ConfigError, ValueError), match=r"^a\.key\."):
            source.read("a.key")
    with pytest.raises(ConfigError, match=r"; set a\.key\.image_column, or give it one"):
        Table(path=str(tmp_path / "pairs.jsonl"), image_column="picture").read("a.key")
