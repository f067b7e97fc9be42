"""Runs that several tests look at, each trained once."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from tests.look.report import run_folders, trained_runs
from tests.once import once

from groupwise.runs import Run, read_run


@pytest.fixture(scope="session")
def compared_runs(tmp_path_factory: pytest.TempPathFactory) -> list[Run]:
    return trained_runs.compared(tmp_path_factory)


@pytest.fixture(scope="session")
def drawing_run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    return read_run(once(tmp_path_factory, "pictures", trained_runs.pictures))


@pytest.fixture
def write_run(tmp_path: Path) -> Callable[..., Run]:
    return lambda **content: run_folders.write_run(tmp_path / "run", **content)
