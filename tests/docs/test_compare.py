"""The guide's tables of false and true calls hold what was measured."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from benchmarks.false_calls import SEEDS, SIDES, VARIANTS, WORLDS, table

ROOT = Path(__file__).parents[2]
RESULTS = json.loads((ROOT / "benchmarks" / "results" / "false_calls.json").read_text())
PAGE = (ROOT / "docs" / "guide" / "compare.md").read_text()


@pytest.mark.parametrize("kind", ["false", "power"])
def test_the_table_is_in_the_page(kind: str) -> None:
    """Renewed by `python benchmarks/false_calls.py --out benchmarks/results/false_calls.json`."""
    assert table(RESULTS["worlds"], kind) in PAGE
    for world in WORLDS.values():
        assert world.gain in PAGE


def test_no_cell_calls_more_equal_variants_than_one_table_in_twenty() -> None:
    assert RESULTS["tables"] == 4000
    assert list(RESULTS["worlds"]) == list(WORLDS)
    bound = 0.05 + 2 * (0.05 * 0.95 / RESULTS["tables"]) ** 0.5
    for name, cells in RESULTS["worlds"].items():
        for side in SIDES:
            shares = cells[f"false, {side}"]
            assert set(shares) == {f"{variants} x {seeds}" for variants in VARIANTS for seeds in SEEDS}
            assert max(shares.values()) <= bound, name
