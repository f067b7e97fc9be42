"""Runs that several tests look at, each trained once."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from tests.look.report import run_folders, trained_runs

from groupwise.runs import Run


@pytest.fixture(scope="session")
def compared_runs(tmp_path_factory: pytest.TempPathFactory) -> list[Run]:
    """Two methods with two seeds each, one of which smooths its ratios."""
    folder = tmp_path_factory.mktemp("compared")
    return [
        trained_runs.language(folder / f"{method}-{seed}", method=method, seed=seed)
        for method in ("grpo", "ema")
        for seed in (0, 1)
    ]


@pytest.fixture(scope="session")
def drawing_run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    return trained_runs.pictures(tmp_path_factory.mktemp("pictures") / "run")


@pytest.fixture(scope="session")
def selection_run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    return trained_runs.demonstrations(tmp_path_factory.mktemp("chosen") / "run")


@pytest.fixture
def write_run(tmp_path: Path) -> Callable[..., Run]:
    return lambda **content: run_folders.write_run(tmp_path / "run", **content)
