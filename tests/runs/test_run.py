from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from tests.training.toy import job, recipe

from groupwise.config import ConfigError
from groupwise.runs import Run, read_run
from groupwise.runs.run import is_number
from groupwise.training import train


@pytest.fixture(scope="module")
def trained_run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("runs") / "run"
    train(job(recipe(num_steps=4)), path)
    return path


@pytest.fixture
def folder(trained_run: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(trained_run, tmp_path / "run"))


def test_a_whole_run_has_nothing_to_remark(trained_run: Path) -> None:
    run = read_run(trained_run)
    assert (run.state, run.num_steps, run.remarks) == ("finished", 4, [])
    steps, values = run.series("reward")
    assert steps == [1, 2, 3, 4]
    assert values == [
        json.loads(line)["reward"]
        for line in (trained_run / "metrics.jsonl").read_text().splitlines()
        if "reward" in line
    ]
    assert list(run.rollouts) == [1, 2, 4]
    members = list(run.records(run.rollouts[2], []))
    assert {"group", "reward", "advantage"} <= set(members[0])


@pytest.mark.parametrize(
    ("name", "content", "remark_text"),
    [
        ("metrics.jsonl", None, "metrics.jsonl is not there"),
        ("metrics.jsonl", b'{"step": 1}\n{"step": 2, "rew', "the last line is cut off"),
        ("metrics.jsonl", b'{"step": "one"}\n{"step": 2}\n', "1 rows have no step"),
        ("config.json", None, "how the run was configured is unknown"),
        ("config.json", b"[1]", "config.json is damaged"),
        ("environment.json", b"\x00\xff", "environment.json is damaged"),
        ("environment.json", b'{"starts": [{"versions": {"groupwise": "99.0.0"}}]}', "groupwise 99.0.0 wrote this run"),
        ("environment.json", b'{"starts": [7, {"versions": 3}]}', ""),
        ("summary.json", None, "the run has not ended; go on with `groupwise resume"),
        ("summary.json", b'{"metric": ', "summary.json is damaged"),
    ],
)
def test_a_damaged_folder_is_read_as_far_as_it_goes(
    folder: Path, name: str, content: bytes | None, remark_text: str
) -> None:
    (folder / name).unlink() if content is None else (folder / name).write_bytes(content)
    run = read_run(folder)
    assert any(remark_text in remark for remark in run.remarks) if remark_text else not run.remarks
    assert run.name
    assert list(run.rollouts) == [1, 2, 4]


def test_a_step_that_was_run_again_counts_as_it_was_run_last(tmp_path: Path) -> None:
    (tmp_path / "metrics.jsonl").write_text(
        "".join(json.dumps({"step": step, "x": number}) + "\n" for number, step in enumerate([1, 2, 3, 2, 3]))
    )
    assert read_run(tmp_path).series("x") == ([1, 2, 3], [0.0, 3.0, 4.0])


def test_the_measurement_with_which_a_stage_begins_does_not_take_the_place_of_the_step_before(tmp_path: Path) -> None:
    rows = [
        {"step": 2, "stage": "one", "reward": 1.0, "eval/x": 28.0},
        {"step": 2, "stage": "two", "eval/x": 0.5},
        {"step": 3, "stage": "two"},
    ]
    (tmp_path / "metrics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    assert read_run(tmp_path).rows == rows


def test_numbers_are_finite_and_never_truth_values(tmp_path: Path) -> None:
    (tmp_path / "metrics.jsonl").write_text(
        '{"step": 1, "x": 1e999, "y": true, "z": 1}\n{"step": 2, "x": NaN, "y": "a", "z": 2.5}\n'
    )
    run = read_run(tmp_path)
    assert run.metrics == ("z",)
    assert run.series("x") == ([], [])
    assert not is_number(10**400)


def test_a_run_in_progress_is_known_by_its_lock(folder: Path) -> None:
    (folder / "summary.json").unlink()
    code = (
        f"import fcntl, sys\nfile = open({str(folder / 'config.json')!r})\nfcntl.flock(file,"
        " fcntl.LOCK_EX)\nprint('held', flush=True)\nsys.stdin.read()"
    )
    with subprocess.Popen(
        [sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "held\n"
        assert read_run(folder).state == "training"
        process.communicate("")
    assert read_run(folder).state == "unfinished"


def test_files_of_other_names_are_no_rollouts(folder: Path) -> None:
    for name in ("step-x.jsonl", "step-.jsonl", "step-3.jsonl.partial"):
        (folder / "rollouts" / name).touch()
    assert list(read_run(folder).rollouts) == [1, 2, 4]


def test_an_empty_folder_is_no_run(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="is not a run folder: it has neither"):
        read_run(tmp_path)
    with pytest.raises(ConfigError, match="no such run folder"):
        read_run(tmp_path / "none")


def test_a_configuration_says_name_and_seed() -> None:
    run = Run(Path("runs/a"), {"name": 3, "seed": "x"}, [{"seed": 4}], None, [], "unfinished", [])
    assert (run.name, run.seed, run.num_steps) == ("a", 4, 0)
