from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from tests.look.report.run_folders import write_run

from groupwise.runs import Run, read_run
from groupwise_look.report.page import render
from groupwise_look.report.results import Variant, controls, differences, group_runs, results
from groupwise_look.report.tables import held_out


def run(seed: int, before: Any, after: Any, *, ended: bool = True, **summary: Any) -> Run:
    table = {
        "metric": "greedy/right",
        "before": before,
        "after": after,
        "seconds": {"update": 3.0, "setup": 1.0},
        **summary,
    }
    rows = [
        {"step": 0, "eval/greedy/right": before, "step_time": 1.5},
        {"step": 5, "eval/greedy/right": after, "step_time": 1.5},
    ]
    return Run(
        Path(f"run-{seed}"), {"seed": seed}, [], table if ended else None, rows, "finished" if ended else "training", []
    )


def test_differences_are_of_runs_of_the_same_seed() -> None:
    first = Variant("a", (run(0, 0.1, 0.5), run(1, 0.2, 0.7)))
    second = Variant("b", (run(1, 0.2, 0.9), run(2, 0.0, 0.4)))
    first_result, second_result = results([first, second])
    assert first_result.differences == ()
    assert second_result.differences == pytest.approx((0.2,))
    assert first_result.gains == pytest.approx((0.4, 0.5))
    assert (first_result.mean("after"), first_result.deviation("after")) == pytest.approx((0.6, 0.02**0.5))
    assert second_result.deviation("differences") is None


@pytest.mark.parametrize(("train", "metric"), [({}, "greedy/right"), ({"metric": "greedy/long"}, "greedy/long")])
def test_a_run_alone_that_has_not_ended_is_measured_as_it_will_be(train: dict[str, Any], metric: str) -> None:
    """Its page said that no evaluation had reported a metric, above their curves."""
    rows = [{"step": step, "eval/greedy/right": step / 10, "eval/greedy/long": 1.0} for step in (0, 5)]
    (row,) = results([Variant("a", (Run(Path("run"), {"train": train}, [], None, rows, "training", []),))])
    assert row.metric == metric
    assert (row.before, row.after) == (((0.0,), (0.5,)) if not train else ((1.0,), (1.0,)))


def test_a_score_that_a_summary_lacks_is_left_out() -> None:
    (row,) = results([Variant("a", (run(0, None, "good", baseline=None), run(1, 0.5, None, seconds=7)))])
    assert row.after == ()
    assert row.before == (0.5,)
    assert row.controls == ()
    assert (row.mean("after"), row.gains) == (None, ())


def browse_evaluations(run: Run, *, text_bytes: int = 10**6) -> dict[str, Any] | None:
    return held_out(run, text_bytes=text_bytes, picture_bytes=10**6)


def test_a_prompt_of_a_real_run_has_its_completions_before_and_after(compared_runs: list[Run]) -> None:
    browser_data = browse_evaluations(compared_runs[0])
    assert browser_data is not None
    assert (browser_data["held"]["before"], browser_data["held"]["after"]) == (0, 3)
    decides = browser_data["held"]["metric"].partition("/")[0]
    assert browser_data["groups"][0]["mode"] == decides, "what decides comes first"
    for group in browser_data["groups"]:
        whens = [member["when"] for member in group["members"]]
        assert whens == sorted(whens, reverse=True)
        assert set(whens) == {"before", "after"}
        assert all("t" in member and member["a"] is None for member in group["members"])


def test_before_is_the_evaluation_that_gave_the_before_of_the_summary(tmp_path: Path) -> None:
    folder = evaluated(tmp_path / "a", [0, 600, 680], [RECORD]).path
    (folder / "metrics.jsonl").write_text(
        "".join(
            json.dumps({"step": step, "eval/greedy/correct": value}) + "\n"
            for step, value in ((0, 0.1), (600, 0.3), (680, 0.9))
        )
    )
    (folder / "summary.json").write_text(json.dumps({"metric": "greedy/correct", "before": 0.3, "after": 0.9}))
    browser_data = browse_evaluations(read_run(folder))
    assert browser_data is not None
    assert (browser_data["held"]["before"], browser_data["held"]["after"]) == (600, 680)


def evaluated(folder: Path, steps: list[int], records: list[dict[str, Any]], first_rollout: int = 0) -> Run:
    (folder / "rollouts").mkdir(parents=True)
    (folder / "metrics.jsonl").write_text('{"step": 1}\n')
    for step in steps:
        text = "".join(json.dumps(record) + "\n" for record in records) + '{"key": "cut'
        (folder / "rollouts" / f"evaluation-{step}.jsonl").write_text(text)
    if first_rollout:
        (folder / "rollouts" / f"step-{first_rollout}.jsonl").write_text("")
    (folder / "summary.json").write_text(json.dumps({"metric": "greedy/correct"}))
    return read_run(folder)


RECORD = {
    "key": "a",
    "mode": "greedy",
    "sample": 0,
    "rewards": {"correct": 1.0, "brief": 0.2},
    "reward": 0.6,
    "prompt": "p",
    "text": "t",
}


def test_the_final_evaluation_is_compared_with_the_start_of_sampling(tmp_path: Path) -> None:
    browser_data = browse_evaluations(evaluated(tmp_path / "a", [0, 600, 640, 680], [RECORD], first_rollout=601))
    assert browser_data is not None
    assert browser_data["held"] == {
        "prompts": "evaluation prompts",
        "metric": "greedy/correct",
        "recorded": 1,
        "left": 0,
        "before": 600,
        "after": 680,
    }
    assert [member["r"] for member in browser_data["groups"][0]["members"]] == [
        1,
        1,
    ], "the metric that decides, not the sum of the rewards"


def test_records_without_completions_are_counted_and_prompts_beyond_the_budget_left_out(tmp_path: Path) -> None:
    bare = [{"key": str(place), "mode": "greedy", "sample": 0, "rewards": {"correct": 0.0}} for place in range(7)]
    assert browse_evaluations(evaluated(tmp_path / "bare", [0, 1], bare)) is None
    browser_data = browse_evaluations(
        evaluated(tmp_path / "some", [0, 1], [RECORD, {**RECORD, "key": "b", "text": "x" * 5000}, *bare]),
        text_bytes=2000,
    )
    assert browser_data is not None
    assert (len(browser_data["groups"]), browser_data["held"]["left"], browser_data["held"]["recorded"]) == (1, 1, 9)
    assert (
        browse_evaluations(
            read_run(Path(evaluated(tmp_path / "odd", [0], [{"rewards": 3, "text": 4, "mode": ["x"]}]).path))
        )
        is not None
    )


def configured_run(path: str | Path, **config: Any) -> Run:
    return Run(Path(path), config, [], None, [], "finished", [])


def names(*runs: Run) -> list[tuple[str, str]]:
    return [(variant.name, variant.seeds) for variant in group_runs(runs)]


def test_seeds_trackers_and_threads_make_no_variant() -> None:
    first_run = configured_run(
        "a", name="x", seed=1, track={"console": "none"}, train={"num_threads": 1, "num_steps": 3}
    )
    second_run = configured_run(
        "b",
        name="x",
        seed=0,
        track={"console": "auto"},
        train={"num_threads": 2, "num_steps": 3},
        description="other words",
    )
    assert names(first_run, second_run) == [("x", "0, 1")]


def test_a_method_is_named_without_the_objective_that_follows_from_it() -> None:
    grpo = configured_run("a", name="x", method="grpo", trust={"low": 0.2})
    dapo = configured_run("b", name="x", method="dapo", trust={"low": 0.3})
    assert [name for name, _ in names(grpo, dapo)] == ["grpo", "dapo"]
    edited = configured_run("c", name="x", method="grpo", trust={"low": 0.4})
    assert [name for name, _ in names(grpo, edited)] == ["trust.low=0.2", "trust.low=0.4"]
    assert [name for name, _ in names(dapo, grpo, edited)] == ["dapo", "grpo, trust.low=0.2", "grpo, trust.low=0.4"]


def test_many_differences_are_counted_and_equal_names_have_their_folders() -> None:
    first_run, second_run = (
        configured_run(name, name="x", a=value, b=value, c=value, d=value, e=value)
        for name, value in (("p", 1), ("q", 2))
    )
    assert [name for name, _ in names(first_run, second_run)] == [
        "a=1, b=1, c=1 and 2 more",
        "a=2, b=2, c=2 and 2 more",
    ]
    assert [name for name, _ in names(configured_run("p"), configured_run("q"))] == ["p", "q"]
    assert [name for name, _ in names(configured_run("p/run"), configured_run("q/run"))] == [
        "run (p/run)",
        "run (q/run)",
    ]


def test_the_runs_of_a_variant_of_a_comparison_are_one_variant(tmp_path: Path) -> None:
    (tmp_path / "comparison.json").write_text("{}")
    folders = [tmp_path / variant / f"seed-{seed}" for variant in ("method=grpo", "method=dapo") for seed in (0, 1)]
    runs = [
        configured_run(folder, name="x", seed=place % 2, added_by_a_later_version=place)
        for place, folder in enumerate(folders)
    ]
    assert names(*runs) == [("method=grpo", "0, 1"), ("method=dapo", "0, 1")]


def test_differences_have_a_value_for_every_variant() -> None:
    variants = group_runs(
        [
            configured_run("a", x=1, method="m", y={"z": [1]}),
            configured_run("b", x=2, method="n", y={"z": [1]}),
            configured_run("c", method="n", x=2, y={"z": [1], "w": 3}),
        ]
    )
    assert differences(variants) == {"method": ["m", "n", "n"], "x": [1, 2, 2], "y.w": [None, None, 3]}


# Controls stand on the page by their names, each with what the run exceeds it by; a reader sees the one that wins.


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


@pytest.mark.parametrize("damage", ["", "[]", "{", '{"after": "good"}', '{"after": NaN}'])
def test_a_damaged_control_is_left_out(damage: str, tmp_path: Path) -> None:
    run = countdown(tmp_path / "run")
    (run.path / "controls" / "supervised" / "summary.json").write_text(damage)
    assert [control.name for control in controls([read_run(run.path)], METRIC)] == ["rejection_sampling"]
