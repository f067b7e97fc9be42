"""What a user can get wrong is one readable message, exit status 2, and nothing left behind."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

BROKEN = {
    "an unknown experiment": (["langage"], "'langage' is neither a shipped experiment nor a file"),
    "an unknown key": (["TINY", "train.num_stps=3"], "did you mean num_steps?"),
    "an unknown method": (["TINY", "method=gspp"], "did you mean gspo"),
    "a value without a key": (["TINY", "dapo"], "write key=value"),
    "a group of one": (["TINY", "train.group_size=1"], "write train.group_size = 2 or more"),
    "fewer prompts than a step takes": (["TINY", "train.prompts_per_step=500"], "500"),
    "a model folder that is not there": (["TINY", "--model", "nowhere/model"], "nowhere/model"),
    "a run folder inside a file": (["TINY", "--out", "FILE/run"], "cannot be written"),
    "a run folder that exists": (["TINY", "--out", "RUN"], "holds a run already"),
    "a model folder without a tokenizer": (["TINY", "--model", "MODEL"], "tokenizer"),
    "an empty data set": (
        [
            "TINY",
            "domain.data.source.kind=files",
            "domain.data.source.paths=[EMPTY]",
            "domain.demonstrations=null",
            "stages=[]",
            "controls=null",
        ],
        "empty",
    ),
}


@pytest.fixture
def places(tmp_path: Path, tiny_file: Path, finished: Path) -> dict[str, Path]:
    (tmp_path / "file").write_text("text")
    (tmp_path / "empty.jsonl").write_text("")
    model = tmp_path / "model"
    model.mkdir()
    for name in ("config.json", "model.safetensors"):
        shutil.copy(finished / "model" / name, model / name)
    return {
        "TINY": tiny_file,
        "FILE": tmp_path / "file",
        "EMPTY": tmp_path / "empty.jsonl",
        "RUN": finished,
        "MODEL": model,
    }


QUICK = [
    *("an unknown experiment", "an unknown key", "a value without a key", "a group of one"),
    *("a run folder that exists", "a model folder without a tokenizer", "an empty data set"),
]


@pytest.mark.parametrize(
    "case", [case if case in QUICK else pytest.param(case, marks=pytest.mark.slow) for case in BROKEN]
)
def test_a_clear_error_before_anything_is_computed(case: str, groupwise, places: dict[str, Path], tmp_path: Path):
    arguments, expected = BROKEN[case]
    for name, path in places.items():
        arguments = [argument.replace(name, str(path)) for argument in arguments]
    ended = groupwise("train", *arguments, *([] if "--out" in arguments else ["--out", tmp_path / "out"]))
    assert ended.status == 2, ended
    assert ended.err.startswith("error: ")
    assert expected in ended.err
    assert "Traceback" not in ended.err
    assert not (tmp_path / "out").exists()


def test_the_installed_command_says_it_too(tmp_path: Path):
    ended = subprocess.run(
        [sys.executable, "-m", "groupwise", "train", "langage"],
        capture_output=True,
        text=True,
        cwd=tmp_path,
        env={**os.environ, "COLUMNS": "60"},
    )
    assert (ended.returncode, ended.stdout) == (2, "")
    assert ended.stderr.startswith("error: 'langage' is neither a shipped experiment nor a file")


@pytest.mark.parametrize("verb", ["resume", "evaluate", "sample", "doctor"])
def test_a_folder_that_is_no_run(verb: str, groupwise, tmp_path: Path):
    assert "no such" in groupwise(verb, tmp_path / "nowhere").err
    (tmp_path / "other").mkdir()
    ended = groupwise(verb, tmp_path / "other")
    assert ended.status == 2
    assert ("holds no run" if verb == "doctor" else "is not a run folder") in ended.err


def test_a_models_folder_is_no_run_to_go_on_with(groupwise, tmp_path: Path):
    (tmp_path / "config.json").write_text('{"model_type": "qwen3"}')
    ended = groupwise("resume", tmp_path)
    assert (ended.status, "it is not what `groupwise train` wrote" in ended.err) == (2, True)


def test_a_run_folder_that_was_damaged(groupwise, finished: Path, tmp_path: Path):
    run = tmp_path / "run"
    shutil.copytree(finished, run)
    whole = (run / "config.json").read_text()
    (run / "config.json").write_text(whole[:200])
    for verb in (
        ["resume"],
        ["evaluate"],
        ["sample"],
        ["export", "--out", tmp_path / "model"],
        ["train", "--out", tmp_path / "again"],
    ):
        ended = groupwise(verb[0], run, *verb[1:])
        assert (ended.status, "config.json: not valid JSON" in ended.err) == (2, True), (verb, ended)
    (run / "config.json").write_text('{"seed": 0}')
    assert "lacks name, method, trust, domain" in groupwise("export", run, "--out", tmp_path / "model").err
    (run / "config.json").write_text(whole)
    (run / "summary.json").write_text('{"metric": ')
    assert "summary.json: not valid JSON" in groupwise("export", run, "--out", tmp_path / "model").err
    assert not (tmp_path / "model").exists()


@pytest.mark.slow
def test_a_file_that_cannot_be_written(groupwise, tmp_path: Path):
    ended = groupwise("schema", "--out", tmp_path / "nowhere" / "schema.json")
    assert ended.status == 2
    assert f"could not be written: there is no folder {tmp_path / 'nowhere'}" in ended.err


def test_doctor_reads_broken_rows_as_far_as_they_go(groupwise, finished: Path, tmp_path: Path):
    run = tmp_path / "run"
    run.mkdir()
    (run / "config.json").write_text("{}")
    (run / "metrics.jsonl").write_text(
        "not json\n" + '{"groups/flat": 1.0, "frac_reward_zero_std": 1.0, "reward": "high"}\n' * 60
    )
    ended = groupwise("doctor", run)
    assert ended.status == 0
    assert "all_flat" in ended.out
