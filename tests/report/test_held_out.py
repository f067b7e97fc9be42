from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from groupwise.report.held_out import held_out
from groupwise.runs import Run, read_run


def shown(run: Run, *, text_bytes: int = 10**6) -> dict[str, Any] | None:
    return held_out(run, text_bytes=text_bytes, picture_bytes=10**6)


def test_a_prompt_of_a_real_run_has_its_completions_before_and_after(compared: list[Run]) -> None:
    found = shown(compared[0])
    assert found is not None
    assert (found["held"]["before"], found["held"]["after"]) == (0, 3)
    decides = found["held"]["metric"].partition("/")[0]
    assert found["groups"][0]["mode"] == decides, "what decides comes first"
    for group in found["groups"]:
        whens = [member["when"] for member in group["members"]]
        assert whens == sorted(whens, reverse=True)
        assert set(whens) == {"before", "after"}
        assert all("t" in member and member["a"] is None for member in group["members"])


def test_pictures_and_demonstrations_are_there(pictures: Run, chosen: Run) -> None:
    drawn, picked = shown(pictures), shown(chosen)
    assert drawn is not None
    assert picked is not None
    assert drawn["pictures"]
    assert all(isinstance(member["i"]["image"], int) for group in drawn["groups"] for member in group["members"])
    assert all(member["d"] for group in picked["groups"] for member in group["members"])


def test_before_is_what_the_summary_measured_before(tmp_path: Path) -> None:
    folder = evaluated(tmp_path / "a", [0, 600, 680], [RECORD]).path
    (folder / "metrics.jsonl").write_text(
        "".join(
            json.dumps({"step": step, "eval/greedy/correct": value}) + "\n"
            for step, value in ((0, 0.1), (600, 0.3), (680, 0.9))
        )
    )
    (folder / "summary.json").write_text(json.dumps({"metric": "greedy/correct", "before": 0.3, "after": 0.9}))
    found = shown(read_run(folder))
    assert found is not None
    assert (found["held"]["before"], found["held"]["after"]) == (600, 680)


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


def test_it_compares_with_where_sampling_began(tmp_path: Path) -> None:
    found = shown(evaluated(tmp_path / "a", [0, 600, 640, 680], [RECORD], first_rollout=601))
    assert found is not None
    assert found["held"] == {
        "prompts": "evaluation prompts",
        "metric": "greedy/correct",
        "recorded": 1,
        "left": 0,
        "before": 600,
        "after": 680,
    }
    assert [member["r"] for member in found["groups"][0]["members"]] == [
        1,
        1,
    ], "the metric that decides, not the sum of the rewards"


def test_a_run_that_was_measured_once_has_no_after(tmp_path: Path) -> None:
    found = shown(evaluated(tmp_path / "a", [0], [RECORD]))
    assert found is not None
    assert "after" not in found["held"]


def test_what_shows_nothing_is_counted_and_what_is_too_much_is_left_out(tmp_path: Path) -> None:
    bare = [{"key": str(place), "mode": "greedy", "sample": 0, "rewards": {"correct": 0.0}} for place in range(7)]
    assert shown(evaluated(tmp_path / "bare", [0, 1], bare)) is None
    found = shown(
        evaluated(tmp_path / "some", [0, 1], [RECORD, {**RECORD, "key": "b", "text": "x" * 5000}, *bare]),
        text_bytes=2000,
    )
    assert found is not None
    assert (len(found["groups"]), found["held"]["left"], found["held"]["recorded"]) == (1, 1, 9)
    assert (
        shown(read_run(Path(evaluated(tmp_path / "odd", [0], [{"rewards": 3, "text": 4, "mode": ["x"]}]).path)))
        is not None
    )
