"""Pages hold what was measured, and tools that measure give what is worked out by hand."""

from __future__ import annotations

import importlib.util
import json
import re
from pathlib import Path
from typing import Any

import pytest
from benchmarks.false_calls import SEEDS, SIDES, VARIANTS, WORLDS, table

from groupwise.objective import Objective
from groupwise.objective.preset import method_names
from groupwise_trainers.skyrl import loss_refusals as skyrl_refusals
from groupwise_trainers.verl.register import loss_refusals as verl_refusals

ROOT = Path(__file__).parents[2]
FALSE_CALLS = json.loads((ROOT / "benchmarks" / "results" / "false_calls.json").read_text())
COMPARE = (ROOT / "docs" / "guide" / "compare.md").read_text()


@pytest.mark.parametrize("kind", ["false", "power"])
def test_the_table_is_in_the_page(kind: str) -> None:
    """Renewed by `python benchmarks/false_calls.py --out benchmarks/results/false_calls.json`."""
    assert table(FALSE_CALLS["worlds"], kind) in COMPARE
    for world in WORLDS.values():
        assert world.gain in COMPARE


def test_no_cell_calls_more_equal_variants_than_one_table_in_twenty() -> None:
    assert FALSE_CALLS["tables"] == 4000
    assert list(FALSE_CALLS["worlds"]) == list(WORLDS)
    bound = 0.05 + 2 * (0.05 * 0.95 / FALSE_CALLS["tables"]) ** 0.5
    for name, cells in FALSE_CALLS["worlds"].items():
        for side in SIDES:
            shares = cells[f"false, {side}"]
            assert set(shares) == {f"{variants} x {seeds}" for variants in VARIANTS for seeds in SEEDS}
            assert max(shares.values()) <= bound, name


# The conformance page holds what was measured, and what was measured is close.

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
            assert TABLE[system]["presets"][name].get("refused"), reasons


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


# `benchmarks/curves.py`: means over quarters of a stage, worked out by hand.


# The findings' tables hold what was measured: `benchmarks/results/source_004.json`.

FINDINGS = (ROOT / "docs" / "guide" / "selection_findings.md").read_text()
GRIDS: dict[str, Any] = json.loads((ROOT / "benchmarks" / "results" / "source_004.json").read_text())


def numbers(line: str) -> list[str]:
    return [each.lstrip("+") for each in re.findall(r"[-+]?\.\d+", line)]


def printed(value: float) -> str:
    return f"{value:.3f}".replace("0.", ".", 1)


@pytest.mark.parametrize("grid", GRIDS)
def test_every_measured_row_is_in_the_page(grid: str) -> None:
    rows = [numbers(line.split("|", 2)[2]) for line in FINDINGS.splitlines() if line.startswith("| ") and "." in line]
    for row in GRIDS[grid]:
        wanted = [
            *row["after"],
            *(row["difference"] or []),
            *(row["end"][f"accuracy_{shots}"] for shots in range(1, 5)),
        ]
        assert list(map(printed, wanted)) in rows, row["variant"]
        assert row["seeds"] == list(range(10, 20))
