"""The public names: there, lazy, and `train` is a room and a verb."""

from __future__ import annotations

import subprocess
import sys

import groupwise


def test_every_public_name_is_there():
    assert {name: getattr(groupwise, name).__name__ for name in groupwise.__all__ if name != "train"} == {
        name: name for name in groupwise.__all__ if name != "train"
    }
    assert set(groupwise.__all__) <= set(dir(groupwise))


def test_train_is_called_and_imported_from_in_either_order():
    from groupwise import train
    from groupwise.train.config import TrainConfig

    assert callable(train)
    assert callable(groupwise.train)
    assert groupwise.train.config.TrainConfig is TrainConfig


def test_importing_the_package_imports_nothing_heavy():
    code = "import groupwise, sys; print(sorted({'torch', 'pydantic', 'transformers'} & set(sys.modules)))"
    assert (
        subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.strip() == "[]"
    )
