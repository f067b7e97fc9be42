"""The study's sections on the spread over seeds and on EMA's coefficient hold what was measured, and the command that
prints them does.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from groupwise.experiment import load_experiment

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "guide" / "study.md").read_text()
RESULTS = ROOT / "benchmarks" / "results"


@pytest.fixture(autouse=True)
def _importable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks"))


@pytest.mark.parametrize("name", ["study_language", "study_restoration"])
def test_the_spread_over_seeds_is_in_the_page(name: str) -> None:
    """Renewed by `python benchmarks/study.py --stability benchmarks/results/study_*.json` where the study was."""
    from study import stability

    for line in stability(json.loads((RESULTS / f"{name}.json").read_text())).splitlines():
        assert line in PAGE


def test_the_coefficients_of_ema_are_in_the_page() -> None:
    from study import markdown

    for line in markdown(json.loads((RESULTS / "study_ema_beta.json").read_text())).splitlines():
        assert line in PAGE


def test_the_spread_is_that_of_the_seeds_and_not_of_their_mean(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    import study

    def row(name: str, variance: float) -> dict:
        spread = {"seeds": variance / 5, "prompts": 0.0, "num_seeds": 5, "num_prompts": 9}
        return {"variant": f"method={name}", "seeds": [0, 1, 2, 3, 4], "after": {"mean": 0.9, "spread": spread}}

    results = {
        "experiment": "made",
        "metric": "right",
        "rows": [row("grpo", 0.04), row("ema", 0.01), row("gspo", 0.0001)],
    }
    (tmp_path / "results.json").write_text(json.dumps(results))
    monkeypatch.setattr(sys, "argv", ["study", "--stability", str(tmp_path)])
    study.main()
    lines = [line for line in capsys.readouterr().out.splitlines() if line.startswith("| `")]
    # Four degrees of freedom: the quantiles of chi squared are .484 and 11.143, that of F (4, 4) for a quarter is .104.
    assert lines[1] == "| `ema` | 0.900 | 0.100 | 0.060 to 0.287 | 0.416 | 5 |"
    assert lines[2] == "| `grpo` | 0.900 | 0.200 | 0.120 to 0.575 |  | 5 |"
    assert [line.split("`")[1] for line in lines] == ["gspo", "ema", "grpo"], "the closest first"


@pytest.mark.parametrize("path", sorted(RESULTS.glob("study_*.json")), ids=lambda path: path.stem)
def test_every_measured_row_is_in_the_page(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks"))
    import study

    page = (ROOT / "docs" / "guide" / "study.md").read_text()
    rows = study.markdown(json.loads(path.read_text())).splitlines()
    assert len(rows) > 3
    assert [row for row in rows if row not in page] == []


def test_grpo_is_whole_with_ten_of_ten_seeds_at_the_rate_that_ships() -> None:
    results = json.loads((ROOT / "benchmarks" / "results" / "study_language.json").read_text())
    grpo = results["rows"][0]
    comparison = load_experiment("source_000").comparison
    assert grpo["variant"] == "method=grpo"
    assert grpo["seeds"] == list(range(comparison.first_seed, comparison.first_seed + comparison.seeds))
    assert grpo["seeds"] == list(range(10, 20))
