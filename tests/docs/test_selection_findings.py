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


def numbers(line: str) -> list[str]:
    return [each.lstrip("+") for each in re.findall(r"[-+]?\.\d+", line)]


def printed(value: float) -> str:
    return f"{value:.3f}".replace("0.", ".", 1)


@pytest.mark.parametrize("grid", RESULTS)
def test_every_measured_row_is_in_the_page(grid: str) -> None:
    rows = [numbers(line.split("|", 2)[2]) for line in PAGE.splitlines() if line.startswith("| ") and "." in line]
    for row in RESULTS[grid]:
        wanted = [
            *row["after"],
            *(row["difference"] or []),
            *(row["end"][f"accuracy_{shots}"] for shots in range(1, 5)),
        ]
        assert list(map(printed, wanted)) in rows, row["variant"]
        assert row["seeds"] == list(range(10, 20))


def grid_of(folder: Path, ends: dict[str, tuple[tuple[float, float], ...]]) -> Path:
    """A grid: variant -> for seeds 3 and 4 the accuracy with one example and the share of flat groups."""
    estimate = {"mean": 0.5, "low": 0.4, "high": 0.6, "spread": {}}
    rows = []
    for number, (variant, seeds) in enumerate(ends.items()):
        for seed, (accuracy, flat) in zip((3, 4), seeds, strict=True):
            run = folder / f"variant-{number}" / f"seed-{seed}"
            run.mkdir(parents=True)
            mean = accuracy - 0.375 * number
            (run / "summary.json").write_text(
                json.dumps({"metric": "selected/accuracy", "before": 0.25, "after": mean, "steps": 2})
            )
            evaluation = {
                "eval/selected/accuracy": mean,
                "eval/selected/accuracy_1": accuracy,
                "eval/selected/shots": 4.0,
            }
            steps = [{"step": 1, "groups/flat": 0.0}, {"step": 2, "groups/flat": 2 * flat}]
            (run / "metrics.jsonl").write_text(
                "".join(json.dumps(row) + "\n" for row in [*steps, {"step": 2, **evaluation}])
            )
        mean = sum(accuracy for accuracy, _ in seeds) / 2
        rows.append(
            {
                "variant": variant,
                "seeds": [3, 4],
                "before": 0.25,
                "after": estimate,
                "difference": None if not rows else estimate,
                "end": {"selected/accuracy_1": mean},
            }
        )
    (folder / "comparison.json").write_text(
        json.dumps({"variants": {f"variant-{number}": variant.split() for number, variant in enumerate(ends)}})
    )
    (folder / "results.json").write_text(json.dumps({"metric": "selected/accuracy", "rows": rows}))
    return folder


@pytest.fixture
def command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Any:
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks"))
    import selection_grids

    grid = tmp_path / "compare-grid"
    grid_of(grid, {"a=1 b=2": ((0.25, 0.5), (0.375, 0.125)), "c=3": ((0.5, 0.0), (0.625, 0.0))})

    def called(*words: str) -> str:
        monkeypatch.setattr(sys, "argv", ["selection_grids", str(grid), *words])
        selection_grids.main()
        return capsys.readouterr().out

    return called


def test_the_tables_command_reads_what_a_comparison_wrote(tmp_path: Path, command: Any) -> None:
    assert "| `c=3` | 2 | 0.500 | 0.400 to 0.600 | +0.500 | +0.400 to +0.600 | 0.562 |" in command(
        "--out", str(tmp_path / "all.json")
    )
    assert json.loads((tmp_path / "all.json").read_text())["grid"][0]["end"] == {"accuracy_1": 0.3125}


def test_below_a_table_stand_the_differences_seed_by_seed_and_the_lowest_and_highest_seed(command: Any) -> None:
    """Accuracy with one example is .25 higher with either seed, so that the interval is a point."""
    said = command()
    assert (
        "| minus `a=1 b=2` | accuracy_1 | 1 to 4 |\n|---|---|---|\n"
        "| `c=3` | +0.250 [+0.250, +0.250]; 2 up, 0 down of 2 | 0 up, 2 down of 2 |\n" in said
    )
    assert "| `a=1 b=2` | 0.250 | 0.250 to 0.375 | 4.000 | 0.125 to 0.500 |  |  |\n" in said
    assert "| `c=3` | 0.250 | 0.125 to 0.250 | 4.000 | 0.000 |  |  |\n" in said
    assert "| minus `c=3` | accuracy_1 | 1 to 4 |\n|---|---|---|\n| `a=1 b=2` | -0.250 [" in command("--against", "c=3")


def test_a_variant_that_the_grid_does_not_have_is_named(command: Any) -> None:
    with pytest.raises(SystemExit, match="there is no variant 'c=4'; write one of a=1 b=2, c=3"):
        command("--against", "c=4")
