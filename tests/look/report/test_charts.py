from __future__ import annotations

import json
import re
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image
from tests.look.report import trained_runs
from tests.look.report.run_folders import write_run

from groupwise.runs import Run
from groupwise_look.report.axes import downsample_curve
from groupwise_look.report.charts import sections, stages
from groupwise_look.report.figures import curves, write_curves, write_figures
from groupwise_look.report.groups import Recorded, scan
from groupwise_look.report.results import Variant, group_runs


def draw_sections(
    variants: list[Variant], recorded: list[Recorded] | None = None
) -> tuple[dict[str, list[dict[str, Any]]], dict[str, list[float | None]]]:
    page_sections, constants = sections(variants, recorded or [Recorded() for _ in variants])
    return {section["title"]: section["charts"] for section in page_sections}, {
        constant["metric"]: constant["values"] for constant in constants
    }


@pytest.mark.slow
def test_every_number_of_a_real_run_is_drawn_or_said_to_be_constant_once(compared_runs: list[Run]) -> None:
    variants = group_runs(compared_runs)
    charts_by_section, constants = draw_sections(variants, [scan(variant.runs[0]) for variant in variants])
    metrics = [chart["metric"] for charts in charts_by_section.values() for chart in charts if chart["kind"] == "line"]
    repeated = {"frac_reward_zero_std", "rewards_mean", "epoch", *(f"ratio/p{level}" for level in (1, 5, 50, 95, 99))}
    assert sorted([*metrics, *constants]) == sorted(
        {name for variant in variants for name in variant.metrics} - repeated
    )
    first = charts_by_section["First"]
    assert [chart["title"] for chart in first[:2]] == ["Reward", "Held-out greedy/reward (decides)"]
    assert len(first) == 6
    assert "kl" in {chart["metric"] for chart in first}
    assert charts_by_section["Learning"][0]["title"] == "Rewards of members"
    assert "loss_pg" in {chart["metric"] for chart in charts_by_section["Losses and divergences"]}
    ratios = charts_by_section["Ratios and the trust region"]
    assert ratios[0]["kind"] == "fan"
    assert "zero_gradient_fraction/positive" in {chart["metric"] for chart in ratios}
    assert charts_by_section["Groups and advantages"][0]["title"] == "Advantages"


def test_a_line_has_both_seeds_and_a_fan_its_percentiles_in_order(compared_runs: list[Run]) -> None:
    variants = group_runs(compared_runs)
    charts_by_section, _ = draw_sections(variants, [scan(variant.runs[0]) for variant in variants])
    reward = charts_by_section["First"][0]["series"]
    assert [series["variant"] for series in reward] == [0, 1]
    assert reward[0]["num_runs"] == [2, 2, 2]
    for chart in (charts_by_section["Ratios and the trust region"][0], charts_by_section["Groups and advantages"][0]):
        for series in chart["series"]:
            columns = list(zip(*series["quantiles"], strict=True))
            assert columns
            assert all(list(column) == sorted(column) for column in columns)


def test_a_constant_metric_is_a_number_and_no_chart(write_run: Callable[..., Run]) -> None:
    rows = [{"step": step, "own/steady": 3, "own/moving": step, "groups/flat": 0.0} for step in (1, 2)]
    charts_by_section, constants = draw_sections([Variant("a", (write_run(rows=rows),))])
    assert constants == {"own/steady": [3]}
    assert [chart["metric"] for chart in charts_by_section["Everything else"]] == ["own/moving"]
    assert "groups/flat" in [chart["metric"] for chart in charts_by_section["First"]], (
        "that no group was flat is worth a chart"
    )


def test_every_controls_score_is_a_line_with_its_name_beside_the_deciding_metric(write_run: Callable[..., Run]) -> None:
    run = write_run(rows=[{"step": 1, "eval/greedy/right": 0.5}])
    for name, after in (("supervised", 0.25), ("rejection_sampling", 0.75)):
        (run.path / "controls" / name).mkdir(parents=True)
        (run.path / "controls" / name / "summary.json").write_text(
            json.dumps({"metric": "greedy/right", "after": after})
        )
    ended = Run(run.path, run.config, [], {"metric": "greedy/right", "baseline": 0.25}, run.rows, "finished", [])
    charts_by_section, _ = draw_sections([Variant("a", (ended,))])
    marks = [
        {"variant": 0, "value": 0.25, "name": "supervised"},
        {"variant": 0, "value": 0.75, "name": "rejection_sampling"},
    ]
    assert charts_by_section["First"][0]["marks"] == marks


def test_stages_begin_where_their_rows_do_and_those_without_rewards_are_folded(
    write_run: Callable[..., Run],
) -> None:
    rows: list[dict[str, Any]] = [{"step": step, "stage": "warm_up" if step < 3 else "grpo"} for step in range(1, 6)]
    unrewarded = [
        {"step": 1, "name": "warm_up", "variant": 0, "folded": False},
        {"step": 3, "name": "grpo", "variant": 0, "folded": False},
    ]
    assert stages([Variant("a", (write_run(rows=rows),))]) == unrewarded
    rows[4]["reward"] = 0.5
    assert stages([Variant("a", (write_run(rows=rows),))]) == [unrewarded[0] | {"folded": True}, unrewarded[1]]
    assert stages([Variant("a", (write_run(rows=rows[:2]),))]) == []


@given(st.lists(st.floats(-1e6, 1e6), min_size=1, max_size=200), st.integers(1, 20))
def test_no_extreme_is_lost_and_the_mean_is_the_mean(values: list[float], most_points: int) -> None:
    curve = downsample_curve([(list(range(len(values))), values)], most_points)
    assert curve is not None
    assert len(curve["step"]) == min(most_points, len(values))
    assert min(curve.get("low", curve["mean"])) == pytest.approx(min(values), rel=1e-4)
    assert max(curve.get("high", curve["mean"])) == pytest.approx(max(values), rel=1e-4)
    assert curve["step"] == sorted(curve["step"])


def test_of_a_shared_point_each_seed_gives_its_mean() -> None:
    curve = downsample_curve([([1, 2, 3, 4], [0.0, 2.0, 4.0, 4.0]), ([1, 2, 3, 4], [3.0, 3.0, 0.0, 8.0])], 2)
    assert curve == {
        "step": [1.5, 3.5],
        "mean": [2, 4],
        "num_runs": [2, 2],
        "run_low": [1, 4],
        "run_high": [3, 4],
        "low": [0, 0],
        "high": [3, 8],
    }


def test_no_values_give_no_curve_and_an_overflowing_sum_gives_a_gap() -> None:
    assert downsample_curve([]) is None
    assert downsample_curve([([], [])]) is None
    assert downsample_curve([([1, 2], [1.7e308, 1.7e308])], 1)["mean"] == [None]


@pytest.fixture(scope="module")
def betas(tmp_path_factory: pytest.TempPathFactory, compared_runs: list[Run]) -> list[Variant]:
    """Plain GRPO and two values of beta, two seeds each."""
    folder = tmp_path_factory.mktemp("betas")
    smoothed = [
        trained_runs.language(folder / f"{beta}-{seed}", method="ema", seed=seed, **{"smoothing.beta": beta})
        for beta in (0.3, 0.6)
        for seed in (0, 1)
    ]
    return group_runs([*compared_runs[:2], *smoothed])


@pytest.fixture(scope="module")
def figure_files(tmp_path_factory: pytest.TempPathFactory, betas: list[Variant]) -> tuple[Path, list[Path], list[str]]:
    """The figures of these runs, and what was said of them."""
    folder = tmp_path_factory.mktemp("figures")
    return folder, *write_figures(betas, folder)


def pdf_text(pdf: Path) -> str:
    """Everything that a PDF's streams write, as far as letters are letters."""
    content = pdf.read_bytes()
    assert content.startswith(b"%PDF-1.")
    assert content.rstrip().endswith(b"%%EOF")
    streams = [
        zlib.decompress(stream_content)
        for stream_content in re.findall(rb"stream\r?\n(.*?)\r?\nendstream", content, re.DOTALL)
        if stream_content[:1] == b"x"
    ]
    return "".join(
        text.decode("latin-1") for stream in streams for text in re.findall(rb"\(((?:[^()\\]|\\.)*)\)", stream)
    ).replace("\0", "")


@pytest.mark.slow
def test_every_figure_of_the_paper_support_opens_and_says_what_it_shows(
    figure_files: tuple[Path, list[Path], list[str]],
) -> None:
    folder, paths, left_out = figure_files
    names = ["variance_reduction", "beta_comparison", "stability", "gains"]
    assert [path.name for path in paths] == [f"{name}.{suffix}" for name in names for suffix in ("pdf", "png")]
    assert left_out == []
    for name, expected_text in zip(
        names, ("Variance reduction", "smoothing.beta", "Reward", "held-out greedy/reward"), strict=True
    ):
        assert expected_text.replace(" ", "") in pdf_text(folder / f"{name}.pdf").replace(" ", "")
        with Image.open(folder / f"{name}.png") as image:
            pixels = np.asarray(image.convert("RGB")).astype(int)
        assert 1200 < pixels.shape[1] < 1600, "across two columns at 200 dots an inch"
        coloured = (pixels.max(2) - pixels.min(2)) > 60
        assert coloured.sum() > 300, "lines in the variants' colours"


def test_a_figure_without_numbers_is_reported_with_the_setting_that_gives_them(tmp_path: Path) -> None:
    paths, left_out = write_figures(group_runs([write_run(tmp_path / "run", rows=[])]), tmp_path / "out")
    assert paths == []
    assert [line.partition(":")[0] for line in left_out] == [
        "variance_reduction",
        "beta_comparison",
        "stability",
        "gains",
    ]
    assert "method=ema" in left_out[0]


def test_a_run_leaves_the_three_curves_of_source_003(tmp_path: Path) -> None:
    rows = [{"step": 0, "eval/reward": 9.0}] + [
        {"step": step, "reward": 0.1 * step, "advantages_mean": -0.01 * step, "loss": 3.0 - step} for step in (1, 2, 3)
    ]
    (tmp_path / "metrics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    drawn = [axes.get_lines()[0].get_xydata().tolist() for axes in curves(rows).axes]
    for points, name in zip(drawn, ("reward", "advantages_mean", "loss"), strict=True):
        assert points == [[row["step"], row[name]] for row in rows[1:]]
    assert write_curves(tmp_path).read_bytes().startswith(b"\x89PNG")
