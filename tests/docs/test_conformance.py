"""The conformance page holds what was measured, and what was measured is close."""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path

import pytest

from groupwise.integrations.skyrl import loss_refusals as skyrl_refusals
from groupwise.integrations.verl.register import loss_refusals as verl_refusals
from groupwise.objective import Objective
from groupwise.objective.preset import method_names

ROOT = Path(__file__).resolve().parents[2]
TABLE = json.loads((ROOT / "benchmarks" / "results" / "conformance.json").read_text(encoding="utf-8"))
# TRL's model and its logarithms are fp32; verl and SkyRL ran in fp64, with sums that verl takes in fp32 for its KL.
BOUND = {"trl": 5e-6, "verl": 1e-9, "skyrl": 1e-9}


@pytest.mark.parametrize("system", TABLE)
def test_every_preset_has_a_line_that_is_close_or_says_why_not(system: str) -> None:
    rows = TABLE[system]["presets"]
    assert set(rows) == set(method_names()), "measure again: make conformance"
    for name, row in rows.items():
        if not {"refused", "not_run"} & set(row):
            assert row["value"] <= BOUND[system], name
            assert row["gradient"] <= BOUND[system], name


@pytest.mark.parametrize(("system", "refusals"), [("verl", verl_refusals), ("skyrl", skyrl_refusals)])
def test_what_the_loss_refuses_now_was_refused_when_it_was_measured(system: str, refusals) -> None:
    for name in method_names():
        reasons = list(refusals(Objective.preset(name)))
        if reasons:
            assert TABLE[system]["presets"][name].get("refused") == "; ".join(reasons)


def test_the_page_has_a_cell_for_every_pair() -> None:
    spec = importlib.util.spec_from_file_location("conformance_page", ROOT / "docs" / "conformance.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    text = module.page()
    for name in method_names():
        line = next(line for line in text.splitlines() if line.startswith(f"| [`{name}`]"))
        assert line.count("|") == len(TABLE) + 2
    assert module.cell({"value": 1.3e-7, "gradient": 2.6e-7}) == "1e-07, 3e-07"
    assert module.cell({"refused": "no"}) == "refused"
    assert module.cell(None) == module.cell({"not_run": "no"}) == "not run"
