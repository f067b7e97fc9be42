"""Runs that ended: one for commands that are given bad input, and what a run of a module's `TINY` is without a kill."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.experiment.tiny import TINY


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a run that ended, trained in this process."""
    from groupwise import load_experiment, train

    folder = tmp_path_factory.mktemp("finished")
    (folder / "tiny.toml").write_text(TINY)
    return train(load_experiment(folder / "tiny.toml", ["controls=null"]), out=folder / "run").folder.path
