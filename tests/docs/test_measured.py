"""Pages hold what was measured, and tools that measure give what is worked out by hand."""

from __future__ import annotations

import importlib.util
import json
import re
import sys
from pathlib import Path
from typing import Any

import pytest
from benchmarks.false_calls import SEEDS, SIDES, VARIANTS, WORLDS, table

from groupwise.integrations.skyrl import loss_refusals as skyrl_refusals
from groupwise.integrations.verl.register import loss_refusals as verl_refusals
from groupwise.objective import Objective
from groupwise.objective.preset import method_names

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


# `benchmarks/curves.py`: means over quarters of a stage, worked out by hand.


@pytest.fixture
def curves(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks"))
    import curves

    return curves


def run(folder: Path, seed: int, scale: float = 1.0) -> str:
    """Two steps of a supervised stage, twelve that sample: `loss_sup` is 1 to 12 times the scale, `lambda_sup` .5."""
    folder.mkdir()
    stages = [
        {"name": "base", "num_steps": 2, "set": {}},
        {"name": "full", "num_steps": 12, "set": {"train": {"max_grad_norm": 0.5}}},
    ]
    config = {"name": "source_001_tiny", "seed": seed, "train": {"max_grad_norm": 1.0}, "stages": stages}
    rows: list[dict[str, Any]] = [{"step": step, "stage": "base", "loss_sup": 100.0} for step in (1, 2)]
    rows[0]["eval/restored/reward"], rows[1]["eval/restored/reward"] = 0.125, 0.25
    for step in range(1, 13):
        curve = {"loss_pg": 1e-15, "loss_sup": scale * step, "lambda_sup": 0.5, "grad_norm": 0.15 * step}
        rows.append({"step": 2 + step, "stage": "full", "advantages_mean": 0.01 - 0.03 * (step == 3), **curve})
    rows[-1]["eval/restored/reward"] = 0.5 + seed / 8
    (folder / "config.json").write_text(json.dumps(config))
    (folder / "metrics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    (folder / "summary.json").write_text(json.dumps({"metric": "restored/reward", "steps": 14}))
    return str(folder)


def test_a_curve_is_the_mean_over_the_first_and_the_last_quarter_of_a_stage_that_samples(
    curves: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    curves.main([run(tmp_path / "a", 0)])
    said = capsys.readouterr().out
    assert said.startswith("|  | full, first quarter | last |\n|---|---|---|\n| `loss_pg` | 0 | 0 |\n")
    assert "| `loss_sup` | 2 | 11 |\n| `loss_sup / lambda_sup` | 4 | 22 |\n" in said
    assert "source_001_tiny, seeds 0:" in said
    assert "| base | 1 | 0.25 |  |  |\n" in said
    # Nine of twelve steps have a norm above .5; one has a mean of -.02, the others of .01.
    assert "| full | 0.5 | 0.5 | 0.75 | 0.02 |\n" in said


def test_two_seeds_stand_beside_each_other_and_three_have_a_mean_and_ends(
    curves: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folders = [run(tmp_path / str(seed), seed, scale) for seed, scale in enumerate((1.0, 2.0, 6.0))]
    curves.main(folders[:2])
    assert "| `loss_sup` | 2, 4 | 11, 22 |" in capsys.readouterr().out
    curves.main(folders)
    said = capsys.readouterr().out
    assert "| `loss_sup` | 6 (2 to 12) | 33 (11 to 66) |" in said
    assert "| `lambda_sup` | 0.5 | 0.5 |" in said
    assert "| full | 0.5 | 0.625 (0.5 to 0.75) | 0.75 | 0.02 |" in said


def test_a_run_that_has_not_ended_is_refused(curves: Any, tmp_path: Path) -> None:
    folder = run(tmp_path / "a", 0)
    (tmp_path / "a" / "summary.json").unlink()
    with pytest.raises(SystemExit, match="has not ended; go on with `groupwise resume"):
        curves.main([folder])


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
