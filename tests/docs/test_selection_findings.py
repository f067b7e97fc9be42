"""The findings' tables hold what was measured: `benchmarks/results/source_004.json`."""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "guide" / "selection_findings.md").read_text()
RESULTS: dict[str, Any] = json.loads((ROOT / "benchmarks" / "results" / "source_004.json").read_text())


def numbers(line: str) -> list[float]:
    return [float(each) for each in re.findall(r"[-+]?\.\d+", line)]


@pytest.mark.parametrize("grid", RESULTS)
def test_every_measured_row_is_in_the_page(grid: str) -> None:
    rows = [numbers(line.split("|", 2)[2]) for line in PAGE.splitlines() if line.startswith("| ") and "." in line]
    for row in RESULTS[grid]:
        wanted = [
            *row["after"],
            *(row["difference"] or []),
            *(row["end"][f"accuracy_{shots}"] for shots in range(1, 5)),
        ]
        assert any(
            len(found) == len(wanted) and all(abs(a - b) < 0.0006 for a, b in zip(found, wanted, strict=True))
            for found in rows
        ), row["variant"]
        assert row["seeds"] == list(range(10, 20))


def test_the_tables_command_reads_what_a_comparison_wrote(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks"))
    import selection_grids

    estimate = {"mean": 0.5, "low": 0.4, "high": 0.6, "spread": {}}
    row = {
        "variant": "a=1",
        "seeds": [0, 1],
        "before": 0.3,
        "after": estimate,
        "difference": None,
        "end": {"selected/accuracy_1": 0.25},
    }
    grid = tmp_path / "compare-grid"
    grid.mkdir()
    (grid / "results.json").write_text(
        json.dumps(
            {"experiment": "source_004_rewards", "rows": [row, {**row, "variant": "a=2", "difference": estimate}]}
        )
    )
    monkeypatch.setattr(sys, "argv", ["selection_grids", str(grid), "--out", str(tmp_path / "all.json")])
    selection_grids.main()
    assert "| `a=2` | 2 | 0.500 | 0.400 to 0.600 | +0.500 | +0.400 to +0.600 | 0.250 |" in capsys.readouterr().out
    assert json.loads((tmp_path / "all.json").read_text())["grid"][0]["end"] == {"accuracy_1": 0.25}
