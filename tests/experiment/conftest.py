"""A real experiment that is small enough to run in a second or two."""

from pathlib import Path

import pytest
from tests.experiment.tiny import TINY


@pytest.fixture
def tiny(tmp_path: Path) -> Path:
    path = tmp_path / "tiny.toml"
    path.write_text(TINY, encoding="utf-8")
    return path
