"""Runs that several tests look at, each trained once."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from tests.report import runs
from tests.report import written as by_hand

from groupwise.runs import Run


@pytest.fixture(scope="session")
def compared(tmp_path_factory: pytest.TempPathFactory) -> list[Run]:
    """Two methods with two seeds each, one of which smooths its ratios."""
    home = tmp_path_factory.mktemp("compared")
    return [
        runs.language(home / f"{method}-{seed}", method=method, seed=seed)
        for method in ("grpo", "ema")
        for seed in (0, 1)
    ]


@pytest.fixture(scope="session")
def pictures(tmp_path_factory: pytest.TempPathFactory) -> Run:
    return runs.pictures(tmp_path_factory.mktemp("pictures") / "run")


@pytest.fixture(scope="session")
def chosen(tmp_path_factory: pytest.TempPathFactory) -> Run:
    return runs.demonstrations(tmp_path_factory.mktemp("chosen") / "run")


@pytest.fixture
def written(tmp_path: Path) -> Callable[..., Run]:
    return lambda **content: by_hand.written(tmp_path / "run", **content)
