"""A run killed anywhere and resumed ends with the weights and metrics of one that was never touched, bit for bit."""

from __future__ import annotations

import random
import shutil
from pathlib import Path
from typing import Any

import pytest
from tests.faults.domains import everything
from tests.faults.processes import go_on, in_a_process, killing, start
from tests.marks import slow_but


@pytest.fixture(scope="module")
def untouched(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    folder = tmp_path_factory.mktemp("untouched")
    assert in_a_process(start, folder / "run") == 0
    return everything(folder / "run")


# The calls are counted from the start of the process: sampling, rewards, updates and checkpoints of different steps and
# stages.
POINTS = [("score", 31), ("save_tree", 4), ("save", 1), ("sample", 1), ("sample", 5), ("reward", 4), ("score", 2)]
POINTS += [("backward", 3), ("evaluate", 1), ("evaluate", 3), ("save_tree", 1), ("save_tree", 2), ("demonstrations", 9)]
POINTS += [("describe", 2)]


@pytest.mark.parametrize(
    ("point", "number"),
    [*slow_but(POINTS[:1], POINTS[:7]), *(pytest.param(*each, marks=pytest.mark.nightly) for each in POINTS[7:])],
)
def test_killed_at_a_point_and_resumed(untouched: dict[str, Any], tmp_path: Path, point: str, number: int) -> None:
    path = tmp_path / "run"
    assert in_a_process(start, path, killing(point, number)) == -9
    assert not (path / "summary.json").exists()
    assert in_a_process(go_on, path) == 0
    assert everything(path) == untouched


@pytest.mark.nightly
def test_killed_again_and_again_at_random_moments(untouched: dict[str, Any], tmp_path: Path) -> None:
    path = tmp_path / "run"
    draw = random.Random(0)
    first = draw.uniform(0.05, 0.4)
    # On a fast machine the run may be over by then; a kill must have happened for the rest to mean anything.
    while (status := in_a_process(start, path, kill_after=first)) == 0:
        shutil.rmtree(path)
        first /= 2
    assert status == -9
    for _ in range(8):
        # A kill may come before the folder holds a configuration: then the run is started again, as a user would.
        begun = (path / "config.json").exists()
        if not begun:
            shutil.rmtree(path, ignore_errors=True)
        if in_a_process(go_on if begun else start, path, kill_after=draw.uniform(first / 2, 4 * first)) == 0:
            break
    else:
        begun = (path / "config.json").exists()
        if not begun:
            shutil.rmtree(path, ignore_errors=True)
        assert in_a_process(go_on if begun else start, path) == 0
    assert everything(path) == untouched
