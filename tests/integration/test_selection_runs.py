"""A real run of the selection default, shortened: it leaves nearest neighbours behind on held-out questions, and its
table says so.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from groupwise.experiment import load_experiment
from groupwise.experiment.runner import run


@pytest.mark.nightly
def test_the_default_learns_to_choose_within_a_few_steps(tmp_path: Path) -> None:
    changes = [
        "train.num_steps=40",
        "domain.evaluation.num_oracle=20",
        "domain.evaluation.num_fixed=16",
        "domain.evaluation.num_resamples=200",
    ]
    result = run(load_experiment("selection", changes), tmp_path / "run")
    assert result.summary["after"] > result.summary["before"] + 0.03
    table = json.loads((tmp_path / "run" / "tables" / "lead.json").read_text())
    lead = {row[0]: row[1:] for row in table["rows"]}
    assert lead["kNN"][0]["low"] > 0, "one demonstration: beyond chance"
    assert lead["random"][3]["low"] > 0
    assert (tmp_path / "run" / "model" / "policy.json").is_file()
    assert (tmp_path / "run" / "tables" / "baselines.md").read_text().count("\n| ") == 12
