"""The restoration domain's default at its full length: the reward is earned, and not by what supervised training would
have given as well.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from groupwise.experiment import load_experiment
from groupwise.experiment.runner import run


@pytest.mark.nightly
def test_the_default_reads_better_than_its_control_by_a_reader_and_by_a_judge(tmp_path: Path) -> None:
    summary = run(load_experiment("restoration", ["track.console=none"]), tmp_path / "run").summary
    over = summary["controls"]["supervised"]
    (read, low, _), (judge, _, _) = over["restored/read"], over["restored/judge"]
    assert read >= 0.04
    assert low > 0
    assert judge >= 0.01
    assert summary["baseline"] - summary["before"] < 0.03, "supervised training had come to its end"
