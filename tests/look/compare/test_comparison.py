"""A comparison reads finished runs and pairs them by seed and prompt."""

from __future__ import annotations

import json
from html.parser import HTMLParser
from pathlib import Path

import numpy as np
import pytest

import groupwise.cli.app  # noqa: F401  # it loads the verbs
from groupwise.runs import EvaluatedOn
from groupwise_look.cli.compare import _show
from groupwise_look.compare.comparison import Comparison, Row, compare, describe_gains, gains, save, write_gains
from groupwise_look.compare.grids import Cell, lay_out, variants
from groupwise_look.compare.page import write_page
from groupwise_look.compare.statistics import Estimate, Spread


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
    assert comparison.noticed == {}


def test_what_the_doctor_says_of_runs_leads(cells: list[Cell], tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    for cell in cells:
        finish(cell, {"a": 0.0})
        if cell.seed:
            rows = (
                {"step": step, "stage": "grpo", "frac_reward_zero_std": 1.0, "reward": 0.0} for step in range(1, 31)
            )
            (cell.folder / "metrics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    comparison = compare(cells)
    assert comparison is not None
    (headline, places), *others = comparison.noticed.items()
    assert (headline, others) == ("All groups are flat since step 20.", [])
    assert places == "method=grpo/seed-1, method=dapo/seed-1"
    _show(comparison)
    assert capsys.readouterr().out.startswith(headline)
    page = write_page(comparison, tmp_path, command="", num_cells=4).read_text(encoding="utf-8")
    assert page.index(headline) < page.index("<table>")


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


def test_metrics_of_training_are_means_over_steps_and_seeds_of_the_variants_that_have_them(cells: list[Cell]):
    for cell in cells:
        finish(cell, {"a": 1.0})
        values = [1.0, 2.0, 6.0] if cell.variant == cells[0].variant else []
        lines = [{"step": step, "ema/variance": value + cell.seed, "ema": 9.0} for step, value in enumerate(values)]
        rows = [*lines, {"step": 4, "eval/greedy/correct": 0.0, "stage": "ema/none"}]
        (cell.folder / "metrics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    comparison = compare(cells, metrics=["ema/*"])
    assert comparison is not None
    seeds = comparison.rows[0].seeds
    assert [row.training for row in comparison.rows] == [{"ema/variance": 3.0 + sum(seeds) / len(seeds)}, {}]


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


# What runs gained over their controls, read from folders.


def finish_control(folder: Path, read: dict[str, float], judge: dict[str, float], score_after: float) -> None:
    (folder / "rollouts").mkdir(parents=True)
    records = [{"key": key, "mode": "restored", "rewards": {"read": read[key], "judge": judge[key]}} for key in read]
    (folder / "rollouts" / "evaluation-4.jsonl").write_text("".join(json.dumps(record) + "\n" for record in records))
    (folder / "summary.json").write_text(
        json.dumps({"metric": "restored/read", "after": score_after, "steps": 4, "seed": 0})
    )


def run_folder(folder: Path, gain: float) -> Path:
    base = {"a": 0.0, "b": 1.0, "c": 0.5}
    finish_control(folder, {key: value + gain for key, value in base.items()}, base, 0.5 + gain)
    (folder / "config.json").write_text(
        json.dumps({"domain": {"rewards": {"read": {"weight": 1.0}, "judge": {"role": "judge"}}}})
    )
    finish_control(folder / "controls" / "more", base, dict(reversed([("a", 0.5), ("b", 1.0), ("c", 0.0)])), 0.5)
    return folder


def test_differences_are_taken_prompt_by_prompt_the_deciding_metric_first(tmp_path: Path) -> None:
    estimates = gains({0: run_folder(tmp_path / "run", 0.25)})["more"]
    assert list(estimates) == ["restored/read", "restored/judge"]
    assert (
        estimates["restored/read"].mean,
        estimates["restored/read"].low,
        estimates["restored/read"].high,
    ) == pytest.approx((0.25, 0.25, 0.25))
    # -0.5, 0 and 0.5: nothing on the mean, something in between.
    judge = estimates["restored/judge"]
    assert judge.mean == 0.0
    assert judge.low < -0.2
    assert judge.high > 0.2


def test_several_seeds_are_one_estimate(tmp_path: Path) -> None:
    estimate = gains({seed: run_folder(tmp_path / str(seed), gain) for seed, gain in enumerate((0.1, 0.2, 0.3))})[
        "more"
    ]["restored/read"]
    assert (estimate.mean, estimate.num_seeds) == (pytest.approx(0.2), 3)
    # t of two degrees of freedom (4.303) times 0.1 / sqrt(3).
    assert estimate.high - estimate.mean == pytest.approx(4.303 * 0.1 / 3**0.5, rel=0.25)
    assert describe_gains({"restored/read": estimate}, "held-out prompts").endswith(
        "95 % over 3 seeds and 3 held-out prompts"
    )


def test_a_control_that_does_as_well_is_said_to(tmp_path: Path) -> None:
    estimates = gains({0: run_folder(tmp_path / "run", 0.0)})["more"]
    assert (estimates["restored/read"].mean, estimates["restored/read"].low, estimates["restored/read"].high) == (
        0.0,
        0.0,
        0.0,
    )
    sentence = describe_gains(estimates, "training prompts")
    assert sentence.startswith(
        "the same by restored/read on each of 3 training prompts; above it by restored/judge +0 ["
    )


def test_the_summary_keeps_them(tmp_path: Path) -> None:
    run = run_folder(tmp_path / "run", 0.25)
    summary = write_gains(run)
    assert json.loads((run / "summary.json").read_text()) == summary
    assert summary["controls"]["more"]["restored/read"] == pytest.approx([0.25, 0.25, 0.25])


def test_a_control_that_was_cut_off_is_left_out(tmp_path: Path) -> None:
    run = run_folder(tmp_path / "run", 0.25)
    (run / "controls" / "more" / "summary.json").unlink()
    assert gains({0: run}) == {}


# The page holds what the table holds, needs nothing but itself, and shows names as they are written.


class Read(HTMLParser):
    """Texts, and everything that would be fetched."""

    def __init__(self) -> None:
        super().__init__()
        self.texts: list[str] = []
        self.fetched: list[str] = []
        self.lines: list[dict[str, str | None]] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.fetched += [f"{name}={value}" for name, value in attrs if name in ("src", "href")] + (
            [tag] if tag == "script" else []
        )
        if tag == "line":
            self.lines.append(dict(attrs))

    def handle_data(self, data: str) -> None:
        self.texts.append(data.strip())


def comparison() -> Comparison:
    spread = Spread(0.001, 0.0, 3, 100)
    baseline = Row(
        "method=grpo",
        0.5,
        Estimate(0.9, 0.8, 1.0, spread),
        None,
        60.0,
        (0, 1, 2),
        verdict="what the others are compared with",
    )
    variant = Row(
        "domain.stop=['</s>']",
        0.5,
        Estimate(0.7, 0.6, 0.8, spread),
        Estimate(-0.2, -0.3, -0.1, spread),
        60.0,
        (0, 1, 2),
        p_value=0.01,
        shares=("evaluation prompts",),
        verdict="worse than method=grpo",
    )
    return Comparison(
        "greedy/correct",
        (baseline, variant),
        missing={"method=dapo/seed-0": "exit status 1\n<no luck>"},
        name="language",
        evaluated_on=EvaluatedOn(512, 0),
    )


def test_the_page_shows_every_number_and_the_failed_runs(tmp_path: Path):
    page = Read()
    page.feed(
        write_page(comparison(), tmp_path, command="groupwise compare language", num_cells=9).read_text(
            encoding="utf-8"
        )
    )
    for text in (
        "0.900",
        "-0.200 *",
        "-0.300 to -0.100",
        "0.010",
        "worse than method=grpo",
        "domain.stop=['</s>']",
        "exit status 1\n<no luck>",
    ):
        assert text in page.texts, text
    assert any("6 of 9 runs finished" in text for text in page.texts)
    assert page.fetched == []
