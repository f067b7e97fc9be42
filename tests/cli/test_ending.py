"""The end of a run: pairs of texts, and results beside the controls."""

from __future__ import annotations

import json
from pathlib import Path

from groupwise.cli.ending import advice, pictures, results, texts
from groupwise.experiment import load_experiment


def record(key: str, text: str, reward: float | None, mode: str = "greedy", sample: int = 0):
    return {
        "key": key,
        "mode": mode,
        "sample": sample,
        "rewards": {"correct": reward},
        "num_tokens": 1,
        "prompt": f"ask {key}",
        "text": text,
    }


def test_texts_are_paired_by_prompt_and_greedy_ones_preferred():
    before = [record("b", "old b", 0.0), record("a", "old a", 0.0), record("a", "noise", 0.0, mode="sampled")]
    after = [record("a", "new\na", 1.0), record("a", "noise", 0.0, mode="sampled"), record("b", "new b", None)]
    assert texts(before, after) == [
        "prompt  ask a",
        "before  old a   correct 0",
        "after   new⏎a   correct 1",
        "",
        "prompt  ask b",
        "before  old b   correct 0",
        "after   new b   correct -",
    ]


def test_sampled_texts_serve_where_there_are_no_greedy_ones():
    assert texts([], [record("a", "one", 1.0, mode="sampled"), record("a", "two", 0.0, mode="sampled", sample=1)]) == [
        "prompt  ask a",
        "writes  one   correct 1",
    ]


def test_results_name_every_control_also_one_that_was_left_out(tmp_path: Path):
    (tmp_path / "controls" / "more").mkdir(parents=True)
    (tmp_path / "controls" / "more" / "summary.json").write_text(json.dumps({"after": 0.5}))
    summary = {
        "metric": "greedy/correct",
        "before": 0.25,
        "after": 0.75,
        "baseline": 0.5,
        "seconds": {"update": 3.0, "rewards": 0.1},
        "steps": 7,
    }
    config = {"controls": {"more": {"description": "More of it."}, "other": {"description": ""}}}
    (tmp_path / "config.json").write_text(json.dumps(config))
    assert results(tmp_path, summary, config) == [
        "Held-out greedy/correct: 0.250 before, 0.750 after",
        "  control more, same start and same time: 0.500  (More of it.)",
        "  control other, same start and same time: not measured",
        "7 steps, 3 s (update 3)",
    ]


def test_pictures_are_named_with_their_places_before_and_after(tmp_path: Path):
    for step, names in ((0, ["grid"]), (9, ["grid", "late"])):
        folder = tmp_path / "rollouts" / f"evaluation-{step}"
        (folder / "members").mkdir(parents=True)
        (folder / "members" / "0-image.png").write_bytes(b"")
        for name in names:
            (folder / f"{name}.png").write_bytes(b"")
    rollouts = tmp_path / "rollouts"
    assert pictures(tmp_path, (0, 9)) == [
        f"picture grid: before {rollouts}/evaluation-0/grid.png after {rollouts}/evaluation-9/grid.png",
        f"picture late: after {rollouts}/evaluation-9/late.png",
    ]


def test_advice_names_the_experiment_only_where_its_name_says_all(tmp_path: Path):
    shipped = load_experiment("diffusion", ["method=grpo", "seed=3"]).table()
    assert "groupwise train diffusion method=dapo\n" in "\n".join(advice(tmp_path, shipped, []))
    own = load_experiment("diffusion", ["domain.model.kind=pretrained", "domain.model.path=models/mine"]).table()
    lines = "\n".join(advice(tmp_path, own, []))
    assert f"groupwise train {tmp_path} method=dapo\n" in lines
    assert f"groupwise compare {tmp_path} --vary" in lines


def test_the_gain_over_a_control_stands_below_it(tmp_path: Path):
    for folder, score in ((tmp_path, 1.0), (tmp_path / "controls" / "more", 0.5)):
        (folder / "rollouts").mkdir(parents=True, exist_ok=True)
        (folder / "rollouts" / "evaluation-7.jsonl").write_text(
            "".join(json.dumps(record(key, "", score)) + "\n" for key in "ab")
        )
        (folder / "summary.json").write_text(
            json.dumps({"metric": "greedy/correct", "after": score, "steps": 7, "seed": 0})
        )
    (tmp_path / "config.json").write_text(json.dumps({"seed": 0}))
    (tmp_path / "environment.json").write_text(json.dumps({"starts": [{"evaluated_on": {"num": 2, "num_trained": 2}}]}))
    lines = results(
        tmp_path,
        {"metric": "greedy/correct", "before": 0.25, "after": 1.0, "steps": 7},
        {"controls": {"more": {"description": ""}}},
    )
    assert lines[0] == "Greedy/correct on training prompts: 0.250 before, 1.000 after"
    assert lines[2] == "    above it by greedy/correct +0.5 [+0.5, +0.5]; 95 % over 2 training prompts"
