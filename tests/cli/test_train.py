"""`train`: what it says at the end, and what lies in the run folder."""

import json
import shutil
from pathlib import Path

import pytest

from groupwise.cli import output
from groupwise.cli.summary import advice, print_summary, results, texts
from groupwise.experiment import load_experiment
from groupwise.track.tracker import depends_on_machine, read_metrics


def test_the_end_of_a_run(groupwise, tiny_file: Path, tmp_path: Path):
    ended = groupwise("train", tiny_file, "trust.low=0.1", "--seed", 5, "--out", tmp_path / "run", "--threads", 1)
    assert (ended.status, ended.err) == (0, ""), ended
    assert "method dapo+edited, seed 5" in ended.out
    assert "Held-out greedy/reward: " in ended.out
    assert "control supervised, same start and same time" in ended.out
    assert ended.out.count("before  ") == ended.out.count("after   ") == 3
    assert f"Run folder: {tmp_path / 'run'}" in ended.out
    assert "Try next:" in ended.out
    summary = json.loads((tmp_path / "run" / "summary.json").read_text())
    assert (summary["metric"], summary["steps"], summary["seed"]) == ("greedy/reward", 5, 5)


@pytest.mark.slow
def test_a_saved_configuration_repeats_the_run(groupwise, finished: Path, tmp_path: Path):
    ended = groupwise("train", finished / "config.json", "--out", tmp_path / "again", "--no-controls")
    assert ended.status == 0, ended
    assert "control" not in ended.out
    weights = [(folder / "model" / "model.safetensors").read_bytes() for folder in (finished, tmp_path / "again")]
    assert weights[0] == weights[1]
    rows = [
        [
            {name: value for name, value in row.items() if not depends_on_machine(name)}
            for row in read_metrics(folder / "metrics.jsonl")
        ]
        for folder in (finished, tmp_path / "again")
    ]
    assert rows[0] == rows[1]


def test_several_processes_need_one_name(groupwise, tiny_file: Path, monkeypatch):
    for name, value in {"WORLD_SIZE": "2", "RANK": "0", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "1"}.items():
        monkeypatch.setenv(name, value)
    ended = groupwise("train", tiny_file)
    assert ended.status == 2
    assert "write --out runs/NAME" in ended.err


def test_another_process_leaves_the_word_to_the_first_and_says_what_is_its_own(groupwise, tiny_file: Path, monkeypatch):
    monkeypatch.setenv("RANK", "1")
    waited = []
    monkeypatch.setattr(output.time, "sleep", waited.append)
    ended = groupwise("train", tiny_file, "seed=-1")
    assert (ended.status, ended.out) == (2, "")
    assert ended.err.startswith("error in process 1: ")
    assert waited == [output.SECONDS_FOR_THE_FIRST]


# `resume`: a run that was cut off goes on to the same end.


@pytest.mark.slow
def test_a_run_cut_off_after_its_fourth_step_ends_as_if_it_had_not_been(groupwise, finished: Path, tmp_path: Path):
    run = tmp_path / "run"
    shutil.copytree(finished, run)
    shutil.rmtree(run / "checkpoints" / "step-5")
    shutil.rmtree(run / "model")
    shutil.rmtree(run / "controls")
    (run / "summary.json").unlink()
    ended = groupwise("resume", run)
    assert (ended.status, ended.err) == (0, ""), ended
    assert "Held-out greedy/reward" in ended.out
    assert "This run has ended: nothing is left to do." in groupwise("resume", run).out
    assert (run / "model" / "model.safetensors").read_bytes() == (finished / "model" / "model.safetensors").read_bytes()


# `evaluate`: a run's model, or a model folder on an experiment's prompts.


def test_a_run_is_evaluated_as_it_was_at_its_end(groupwise, finished: Path):
    ended = groupwise("evaluate", finished, "--json")
    assert ended.status == 0, ended
    found = json.loads(ended.out)
    rows = [json.loads(line) for line in (finished / "metrics.jsonl").read_text().splitlines()]
    measured = {name.removeprefix("eval/"): value for name, value in rows[-1].items() if name.startswith("eval/")}
    assert found["metrics"] == pytest.approx(measured)


def test_a_model_folder_needs_an_experiment(groupwise, finished: Path, tiny_file: Path):
    assert "--experiment NAME" in groupwise("evaluate", finished / "model").err
    ended = groupwise("evaluate", finished / "model", "--experiment", tiny_file)
    assert ended.status == 0, ended
    assert "greedy/correct" in ended.out
    assert ended.out.count("prompt  ") == 3


def test_a_model_that_was_not_kept_is_named(groupwise, finished: Path):
    assert "has no 3 model; it has final" in groupwise("evaluate", finished, "--which", 3).err


# The end of a run: pairs of texts, and results beside the controls.


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


def test_the_end_of_a_bad_run_begins_with_its_cause_and_counts_the_steps_it_took(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    row = {"stage": "grpo", "frac_reward_zero_std": 1.0, "reward": 0.0, "step_time": 1.0}
    rows = [{"step": 600, "stage": "grpo"}, *({**row, "step": step} for step in range(601, 631))]
    (tmp_path / "metrics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    summary = {"metric": "greedy/correct", "before": 0.0, "after": 0.0, "steps": 630, "seconds": {}}
    (tmp_path / "summary.json").write_text(json.dumps(summary))
    (tmp_path / "config.json").write_text(json.dumps(load_experiment("language", ["controls=null"]).table()))
    print_summary(tmp_path, (600, 630))
    lines = capsys.readouterr().out.splitlines()
    assert lines[1].startswith("All groups are flat since step 620. (groupwise doctor ")
    assert "30 steps, 0 s" in lines


def test_advice_names_the_run_folder(tmp_path: Path):
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
