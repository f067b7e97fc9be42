from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from groupwise.runs import Run
from groupwise_look.report.charts import sections, stages, time_split
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
    assert [chart["title"] for chart in charts_by_section["Learning"][:3]] == [
        "Reward",
        "Held-out greedy/reward (decides)",
        "Rewards of members",
    ]
    assert {"loss", "loss_pg", "kl"} <= {chart["metric"] for chart in charts_by_section["Losses and divergences"]}
    ratios = charts_by_section["Ratios and the trust region"]
    assert ratios[0]["kind"] == "fan"
    assert {"ema/raw_weights_variance", "zero_gradient_fraction/positive"} <= {chart["metric"] for chart in ratios}
    assert charts_by_section["Groups and advantages"][0]["title"] == "Advantages"


def test_a_line_has_both_seeds_and_a_fan_its_percentiles_in_order(compared_runs: list[Run]) -> None:
    variants = group_runs(compared_runs)
    charts_by_section, _ = draw_sections(variants, [scan(variant.runs[0]) for variant in variants])
    reward = charts_by_section["Learning"][0]["series"]
    assert [series["variant"] for series in reward] == [0, 1]
    assert reward[0]["num_runs"] == [2, 2, 2]
    for chart in (charts_by_section["Ratios and the trust region"][0], charts_by_section["Groups and advantages"][0]):
        for series in chart["series"]:
            columns = list(zip(*series["quantiles"], strict=True))
            assert columns
            assert all(list(column) == sorted(column) for column in columns)


def test_percentiles_that_share_a_point_keep_their_outermost(write_run: Callable[..., Run]) -> None:
    levels = {"ratio/p1": 0.9, "ratio/p5": 0.95, "ratio/p50": 1.0, "ratio/p95": 1.05, "ratio/p99": 1.1}
    rows = [{"step": step, **levels} for step in range(1, 1001)]
    rows[500] |= {"ratio/p1": 0.1, "ratio/p99": 9.0}
    charts_by_section, _ = draw_sections([Variant("a", (write_run(rows=rows),))])
    low, *_, high = charts_by_section["Ratios and the trust region"][0]["series"][0]["quantiles"]
    assert min(low) == 0.1
    assert max(high) == 9


def test_a_constant_metric_is_a_number_and_no_chart(write_run: Callable[..., Run]) -> None:
    rows = [{"step": step, "own/steady": 3, "own/moving": step, "groups/flat": 0.0} for step in (1, 2)]
    charts_by_section, constants = draw_sections([Variant("a", (write_run(rows=rows),))])
    assert constants == {"own/steady": [3]}
    assert [chart["metric"] for chart in charts_by_section["Everything else"]] == ["own/moving"]
    assert "groups/flat" in [chart["metric"] for chart in charts_by_section["Groups and advantages"]], (
        "that no group was flat is worth a chart"
    )


def test_two_constants_that_differ_between_seeds_are_no_constant(
    compared_runs: list[Run], write_run: Callable[..., Run]
) -> None:
    runs = (write_run(rows=[{"step": 1, "own": 1}]), write_run(rows=[{"step": 1, "own": 2}]))
    assert "own" not in draw_sections([Variant("a", runs)])[1]


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
    assert charts_by_section["Learning"][0]["marks"] == marks


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


def test_time_is_a_runs_mean_by_part(write_run: Callable[..., Run]) -> None:
    running = write_run(rows=[{"step": step, "seconds/update": 2.0, "seconds/sampling": 1.0} for step in (1, 2)])
    ended = Run(
        running.path, {}, [], {"seconds": {"update": 8.0, "setup": 2.0, "odd": "x", "tiny": 0.001}}, [], "finished", []
    )
    assert time_split([Variant("a", (running, ended))]) == [
        {"variant": 0, "seconds": 8.0005, "parts": [["update", 6], ["sampling", 1], ["setup", 1]]}
    ]
    assert time_split([Variant("a", (write_run(rows=[]),))]) == []
