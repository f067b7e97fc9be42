"""A comparison reads finished runs and pairs them by seed and prompt."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from groupwise_look.compare.comparison import compare, save
from groupwise_look.compare.grids import Cell, lay_out, variants


def finish(cell: Cell, scores: dict[str, float]) -> None:
    (cell.folder / "rollouts").mkdir(parents=True)
    (cell.folder / "config.json").write_text("{}")
    records = [
        {"key": key, "mode": "greedy", "rewards": {"correct": score}, "num_tokens": 1} for key, score in scores.items()
    ]
    (cell.folder / "rollouts" / "evaluation-4.jsonl").write_text(
        "".join(json.dumps(record) + "\n" for record in records)
    )
    summary = {
        "metric": "greedy/correct",
        "before": 0.25,
        "after": 0.0,
        "baseline": None,
        "seconds": {"update": 2.0, "sampling": 1.0},
        "steps": 4,
    }
    (cell.folder / "summary.json").write_text(json.dumps(summary))


@pytest.fixture
def cells(tmp_path: Path) -> list[Cell]:
    return lay_out(tmp_path / "grid", "tiny", {variant: {} for variant in variants(["method=grpo,dapo"])}, [0, 1])


def test_means_and_paired_differences(cells: list[Cell], tmp_path: Path):
    prompts = {"a": 0.0, "b": 1.0, "c": 0.5}
    for cell in cells:
        gain = 0.0 if cell.variant.name == "method=grpo" else 0.25
        finish(cell, {key: score + gain for key, score in prompts.items()})
    comparison = compare(cells)
    assert comparison is not None
    grpo, dapo = comparison.rows
    assert (grpo.variant, grpo.before, grpo.after.mean, grpo.difference) == ("method=grpo", 0.25, 0.5, None)
    assert dapo.after.mean == pytest.approx(0.75)
    assert dapo.difference is not None
    assert (dapo.difference.low, dapo.difference.high) == pytest.approx((0.25, 0.25))
    assert (dapo.seeds, dapo.seconds) == ((0, 1), 3.0)
    assert json.loads(save(comparison, tmp_path).read_text())["rows"][1]["difference"]["spread"]["num_seeds"] == 2


def test_unfinished_cells_are_left_out_and_nothing_finished_is_nothing(cells: list[Cell]):
    assert compare(cells) is None
    finish(cells[0], {"a": 1.0})
    finish(cells[3], {"a": 0.0})
    comparison = compare(cells)
    assert comparison is not None
    assert [row.seeds for row in comparison.rows] == [(0,), (1,)]
    assert comparison.rows[1].difference is None


def test_further_metrics_are_those_of_the_evaluations_that_the_summary_is_of(cells: list[Cell]):
    for cell in cells:
        finish(cell, {"a": 1.0})
        rows = [(0, "warm_up", 0.1, 9.0), (3, "grpo", 0.25, 5.0 + cell.seed), (4, "grpo", 0.0, 2.0)]
        lines = [
            {"step": step, "stage": stage, "eval/greedy/correct": correct, "eval/greedy/length": length}
            for step, stage, correct, length in rows
        ]
        (cell.folder / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    comparison = compare(cells, ["greedy/length", "greedy/unknown"])
    assert comparison is not None
    assert (comparison.rows[0].start, comparison.rows[0].end) == ({"greedy/length": 5.5}, {"greedy/length": 2.0})


def test_a_difference_is_told_from_none_only_with_all_comparisons_counted(tmp_path: Path):
    names = ["method=grpo", *(f"method={name}" for name in ("dapo", "gspo", "cispo", "rloo", "opo"))]
    cells = lay_out(
        tmp_path / "many",
        "tiny",
        {variant: {} for variant in variants(["method=" + ",".join(name[7:] for name in names)])},
        range(4),
    )
    random = np.random.default_rng(0)
    luck = {"method=dapo": [0.30, 0.32, 0.29, 0.31], "method=gspo": [0.02, 0.06, 0.03, 0.08]}
    for cell in cells:
        gain = (
            luck.get(cell.variant.name, [0.01, -0.01, 0.02, -0.02])[cell.seed]
            if cell.variant.name != "method=grpo"
            else 0.0
        )
        finish(cell, {str(place): gain + float(random.normal(0, 1e-4)) for place in range(20)})
    comparison = compare(cells)
    assert comparison is not None
    rows = {row.variant: row for row in comparison.rows}
    assert rows["method=dapo"].distinguishable
    assert rows["method=dapo"].verdict == "better than method=grpo"
    gspo = rows["method=gspo"]
    assert gspo.difference is not None
    # Alone it would be: its own interval leaves 0 out.
    assert gspo.difference.p_value is not None
    assert gspo.difference.p_value < 0.05 < (gspo.p_value or 0)
    assert gspo.verdict.startswith(
        "not distinguishable at this number of seeds (4); were the measured difference the real one, "
    )
    assert (gspo.seeds_needed or 0) > 4
    assert "1000 seeds would not do" in rows["method=rloo"].verdict or (rows["method=rloo"].seeds_needed or 0) > 100


def test_a_table_of_too_few_seeds_says_how_many_it_needs(tmp_path: Path):
    cells = lay_out(
        tmp_path / "few", "tiny", {variant: {} for variant in variants(["method=grpo,dapo,gspo"])}, range(3)
    )
    for cell in cells:
        finish(cell, dict.fromkeys("ab", 0.55 if cell.variant.name == "method=grpo" else 0.98))
    comparison = compare(cells)
    assert comparison is not None
    assert [row.verdict for row in comparison.rows[1:]] == 2 * [
        "not distinguishable at this number of seeds (3): a table of this size calls no difference real with fewer than"
        " 4; were the measured difference the real one, 4 would be needed"
    ]


def test_a_metric_to_be_small_turns_gain_and_verdict_around(tmp_path: Path):
    cells = lay_out(tmp_path / "small", "tiny", {variant: {} for variant in variants(["method=grpo,dapo"])}, range(3))
    for cell in cells:
        finish(
            cell,
            {
                str(place): (0.5 if cell.variant.name == "method=grpo" else 0.1) + 0.001 * place * cell.seed
                for place in range(9)
            },
        )
        (cell.folder / "config.json").write_text(json.dumps({"train": {"metric_goal": "min"}}))
    comparison = compare(cells)
    assert comparison is not None
    assert comparison.rows[1].verdict == "better than method=grpo"
    # Before .25, after about .5 and .1, in three seconds.
    assert comparison.rows[0].per_second is not None
    assert comparison.rows[1].per_second is not None
    assert comparison.rows[0].per_second.mean == pytest.approx(-0.25 / 3, abs=0.002)
    assert comparison.rows[1].per_second.mean == pytest.approx(0.15 / 3, abs=0.002)


def test_cells_that_failed_or_are_damaged_are_named_and_the_others_stand(cells: list[Cell]):
    for cell in cells:
        finish(cell, {"a": 1.0, "b": 0.0})
    (cells[0].folder / "summary.json").write_text('{"metric": "greedy/corr')
    (cells[2].folder / "summary.json").unlink()
    records = cells[1].folder / "rollouts" / "evaluation-4.jsonl"
    records.write_text(records.read_text() + '{"key": "c", "mo')
    comparison = compare(cells, failed={cells[2].folder: "exit status 1"})
    assert comparison is not None
    assert [row.variant for row in comparison.rows] == ["method=dapo"]
    assert comparison.rows[0].after.num_prompts == 2
    assert (
        comparison.rows[0].verdict
        == "what the others are compared with, in place of method=grpo, which has no finished run"
    )
    assert comparison.missing["method=grpo/seed-1"] == "exit status 1"
    assert "summary.json" in comparison.missing["method=grpo/seed-0"]


def test_no_difference_is_called_none(cells: list[Cell]):
    for cell in cells:
        finish(cell, {"a": 1.0, "b": 0.0})
    comparison = compare(cells)
    assert comparison is not None
    assert comparison.rows[1].verdict == "not distinguishable at this number of seeds (2): no difference was measured"


def test_a_variant_of_another_metric_is_named_and_the_others_stand(cells: list[Cell]):
    for cell in cells:
        finish(cell, {"a": 1.0, "b": 0.0})
        if cell.variant.name == "method=dapo":
            summary = json.loads((cell.folder / "summary.json").read_text())
            (cell.folder / "summary.json").write_text(json.dumps({**summary, "metric": "selected/accuracy"}))
    comparison = compare(cells)
    assert comparison is not None
    assert [row.variant for row in comparison.rows] == ["method=grpo"]
    assert comparison.missing.keys() == {"method=dapo/seed-0", "method=dapo/seed-1"}
    reason = comparison.missing["method=dapo/seed-0"]
    assert reason.startswith(
        "it was measured by selected/accuracy (the larger the better) and method=grpo by greedy/correct (the larger the"
        " better)"
    )
