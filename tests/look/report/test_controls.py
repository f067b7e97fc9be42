"""Controls stand on the page by their names, each with what the run exceeds it by; a reader sees the one that wins."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from tests.look.report.run_folders import NASTY, write_run

from groupwise.runs import Run, read_run
from groupwise_look.report.page import render
from groupwise_look.report.results import Variant, controls, group_runs, results
from groupwise_look.report.tables import markdown

METRIC = "greedy/right"


def ended(
    folder: Path,
    after: float,
    scores: dict[str, float],
    intervals: dict[str, list[float]],
    *,
    seed: int = 0,
    **train: Any,
) -> Run:
    """A run that has ended, with controls beside it."""
    config = {"name": "ended", "seed": seed, "train": train, "controls": {name: {} for name in scores}}
    write_run(folder, rows=[{"step": 1, "stage": "grpo", f"eval/{METRIC}": after}], config=config)
    summary = {
        "metric": METRIC,
        "before": 0.1,
        "after": after,
        "baseline": next(iter(scores.values())),
        "steps": 1,
        "seed": seed,
        "seconds": {"update": 1.0},
    }
    summary["controls"] = {name: {METRIC: interval} for name, interval in intervals.items()}
    (folder / "summary.json").write_text(json.dumps(summary))
    for name, score in scores.items():
        (folder / "controls" / name).mkdir(parents=True)
        (folder / "controls" / name / "summary.json").write_text(json.dumps({"metric": METRIC, "after": score}))
    return read_run(folder)


def countdown(folder: Path) -> Run:
    """The first control is beaten, the second wins."""
    return ended(
        folder,
        0.621,
        {"supervised": 0.518, "rejection_sampling": 0.647},
        {"supervised": [0.103, 0.055, 0.153], "rejection_sampling": [-0.026, -0.049, -0.007]},
    )


def cells(page: bytes) -> list[str]:
    """The texts of the table of results, line by line."""
    table = page.decode().split('<table class="results">')[1].split("</table>")[0]
    return [" ".join(re.sub(r"<[^>]*>", " ", line).split()) for line in table.split("<tr")]


def test_the_page_names_every_control_the_one_that_wins_too(tmp_path: Path) -> None:
    page = render([countdown(tmp_path / "run")])
    assert any(
        re.fullmatch(r'class="control"> control supervised 0.518 \+0.103 \[\+0.055, \+0.153\]', line)
        for line in cells(page)
    ), cells(page)
    assert any(
        re.fullmatch(r'class="control"> control rejection_sampling 0.647 .0.026 \[.0.049, .0.007\]', line)
        for line in cells(page)
    ), cells(page)
    assert b'class="worse"' in page


def test_the_verdict_follows_the_interval_and_the_goal(tmp_path: Path) -> None:
    first, second = controls([countdown(tmp_path / "run")], METRIC)
    assert (first.verdict, first.wins, second.verdict, second.wins) == ("better", False, "worse", True)
    (small,) = controls(
        [ended(tmp_path / "loss", 0.5, {"a": 0.7}, {"a": [-0.2, -0.3, -0.1]}, metric_goal="min")], METRIC
    )
    assert (small.verdict, small.wins) == ("better", False)
    (even,) = controls([ended(tmp_path / "even", 0.5, {"a": 0.7}, {"a": [-0.2, -0.5, 0.1]})], METRIC)
    assert even.verdict == "even"


def test_several_seeds_have_a_mean_and_a_deviation(tmp_path: Path) -> None:
    runs = tuple(ended(tmp_path / str(seed), 0.5 + seed / 10, {"a": 0.4}, {}, seed=seed) for seed in range(2))
    (control,) = controls(runs, METRIC)
    assert (control.score, control.lead, control.deviation, control.interval) == pytest.approx(
        (0.4, 0.15, 0.005**0.5, None)
    )
    assert "± 0.0707" in " ".join(cells(render(runs)))


def test_a_table_for_a_text_names_them(tmp_path: Path) -> None:
    text = markdown(results(group_runs([countdown(tmp_path / "run")])))
    assert ["control" in line for line in text.splitlines()[2:5]] == [False, True, True]


@pytest.mark.parametrize("damage", ["", "[]", "{", '{"after": "good"}', '{"after": NaN}'])
def test_a_damaged_control_is_left_out(damage: str, tmp_path: Path) -> None:
    run = countdown(tmp_path / "run")
    (run.path / "controls" / "supervised" / "summary.json").write_text(damage)
    assert [control.name for control in controls([read_run(run.path)], METRIC)] == ["rejection_sampling"]


def test_a_name_is_text(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    run = ended(folder, 0.5, {"a": 0.4}, {})
    hostile = Run(run.path, {**run.config, "controls": {NASTY: {}}}, [], run.summary, run.rows, "finished", [])
    hostile.__dict__["controls"] = {NASTY: {"after": 0.4}}
    assert b"<img" not in render([hostile])
    assert results([Variant("v", (hostile,))])[0].controls[0].name == NASTY
