"""`resume`: a run that was cut off goes on to the same end."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest


@pytest.mark.slow
def test_a_run_cut_off_after_its_fourth_step_ends_as_if_it_had_not_been(groupwise, finished: Path, tmp_path: Path):
    run = tmp_path / "run"
    shutil.copytree(finished, run)
    shutil.rmtree(run / "checkpoints" / "step-5")
    shutil.rmtree(run / "model")
    shutil.rmtree(run / "controls")
    (run / "summary.json").unlink()
    ended = groupwise("resume", run)
    assert (ended.status, ended.err) == (0, ""), ended
    assert "Held-out greedy/reward" in ended.out
    assert "This run has ended: nothing is left to do." in groupwise("resume", run).out
    assert (run / "model" / "model.safetensors").read_bytes() == (finished / "model" / "model.safetensors").read_bytes()
