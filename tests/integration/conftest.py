"""Model folders that the runs of this room start from, made once."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.integration.small import save_model


@pytest.fixture(autouse=True)
def _own_code(monkeypatch: pytest.MonkeyPatch) -> None:
    """What these tests write as JSON, and the folders that they copy, are their own word."""
    monkeypatch.setenv("GROUPWISE_RUN_CODE", "1")


@pytest.fixture(scope="session")
def qwen(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_model(tmp_path_factory.mktemp("qwen") / "model", "qwen3")


@pytest.fixture(scope="session")
def gpt2(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_model(tmp_path_factory.mktemp("gpt2") / "model", "gpt2")
