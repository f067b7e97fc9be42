from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from groupwise.runs import Run, read_run
from groupwise_look.report.tables import held_out


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


def test_pictures_and_demonstrations_are_there(drawing_run: Run, selection_run: Run) -> None:
    drawn, picked = browse_evaluations(drawing_run), browse_evaluations(selection_run)
    assert drawn is not None
    assert picked is not None
    assert drawn["pictures"]
    assert all(isinstance(member["i"]["image"], int) for group in drawn["groups"] for member in group["members"])
    assert all(member["d"] for group in picked["groups"] for member in group["members"])


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


def test_a_run_that_was_measured_once_has_no_after(tmp_path: Path) -> None:
    browser_data = browse_evaluations(evaluated(tmp_path / "a", [0], [RECORD]))
    assert browser_data is not None
    assert "after" not in browser_data["held"]


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
