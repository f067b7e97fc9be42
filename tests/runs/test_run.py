from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from tests.training.toy import job, recipe

from groupwise.config import ConfigError
from groupwise.runs import find_runs, read_lines, read_run
from groupwise.runs.folder import RunFolder, require_known_version, written_by
from groupwise.training.run.launch import train


@pytest.fixture(scope="module")
def trained_run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("runs") / "run"
    train(job(recipe(num_steps=4)), path)
    return path


@pytest.fixture
def run_folder(trained_run: Path, tmp_path: Path) -> Path:
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
    run_folder: Path, name: str, content: bytes | None, remark_text: str
) -> None:
    (run_folder / name).unlink() if content is None else (run_folder / name).write_bytes(content)
    run = read_run(run_folder)
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


def test_a_run_in_progress_is_known_by_its_lock(run_folder: Path) -> None:
    (run_folder / "summary.json").unlink()
    code = (
        f"import fcntl, sys\nfile = open({str(run_folder / 'config.json')!r})\nfcntl.flock(file,"
        " fcntl.LOCK_EX)\nprint('held', flush=True)\nsys.stdin.read()"
    )
    with subprocess.Popen(
        [sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "held\n"
        assert read_run(run_folder).state == "training"
        process.communicate("")
    assert read_run(run_folder).state == "unfinished"


def make_run(path: Path) -> Path:
    path.mkdir(parents=True)
    (path / "metrics.jsonl").touch()
    return path


def test_a_comparison_gives_its_runs_in_the_order_people_count(tmp_path: Path) -> None:
    runs = [
        make_run(tmp_path / "grid" / variant / seed)
        for variant in ("beta=0.5", "beta=0.9")
        for seed in ("seed-2", "seed-10")
    ]
    assert find_runs([tmp_path / "grid"]) == runs
    assert find_runs([runs[3], tmp_path / "grid"]) == [runs[3], *runs[:3]], "each once, in the order given"


def test_what_lies_inside_a_run_is_part_of_it(tmp_path: Path) -> None:
    run = make_run(tmp_path / "run")
    make_run(run / "controls" / "supervised")
    (run / "model").mkdir()
    (run / "model" / "config.json").write_text("{}")
    assert find_runs([tmp_path]) == [run]


def test_a_folder_of_models_is_no_run(tmp_path: Path) -> None:
    (tmp_path / "model").mkdir()
    (tmp_path / "model" / "config.json").write_text("{}")
    with pytest.raises(ConfigError, match=r"holds no run: no metrics\.jsonl in it or up to 3 folders down"):
        find_runs([tmp_path])


def test_a_warm_up_that_variants_share_is_no_result(tmp_path: Path) -> None:
    grid = tmp_path / "grid"
    warm_up = make_run(grid / "warm-up-0f" / "seed-0")
    (grid / "comparison.json").write_text('{"variants": {"beta=0.3": [], "warm-up-steps=9": []}}')
    assert find_runs([grid]) == [warm_up], "while it is all that there is"
    variants = [make_run(grid / name / "seed-0") for name in ("beta=0.3", "warm-up-steps=9")]
    assert find_runs([grid]) == variants
    assert find_runs([grid / "warm-up-0f"]) == [warm_up], "named by itself"
    assert find_runs([grid], warm_ups=True) == [*variants, warm_up], "as the doctor asks"
    (grid / "comparison.json").unlink()
    assert find_runs([grid]) == sorted([*variants, warm_up]), "a name alone makes no warm-up"


def test_every_whole_object_is_read_and_the_rest_is_said(tmp_path: Path) -> None:
    path = tmp_path / "metrics.jsonl"
    path.write_bytes(
        b'{"step": 1, "x": NaN, "y": -Infinity}\n\n\x00\xff{"a\n7\nnull\n{"step": 2, "text": "\xff"}\n'
        + b"[" * 5000
        + b'\n{"step": 3'
    )
    read = read_lines(path)
    assert read.rows == [{"step": 1, "x": None, "y": None}, {"step": 2, "text": "\ufffd"}]
    assert read.remarks == [
        "metrics.jsonl: lines 3, 4, 5, 7 are no JSON objects and are left out",
        "metrics.jsonl: the last line is cut off and is left out",
    ]


def test_a_last_line_that_lacks_only_its_end_counts(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_text('{"step": 1}\n{"step": 2}')
    assert read_lines(tmp_path / "a.jsonl").rows == [{"step": 1}, {"step": 2}]
    assert not read_lines(tmp_path / "a.jsonl").remarks


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
def test_a_file_that_may_not_be_read_is_said(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").touch(mode=0)
    assert read_lines(tmp_path / "a.jsonl").remarks == ["a.jsonl cannot be read (Permission denied)"]


# Which version wrote a run folder, and which versions go on with it.


def started_by(folder: Path, environment: object) -> RunFolder:
    (folder / "environment.json").write_text(json.dumps(environment))
    return RunFolder(folder)


@pytest.mark.parametrize(
    ("environment", "expected"),
    [
        ({"starts": [{"versions": {"groupwise": "0.1.0"}}, {"versions": {"groupwise": "0.2.3"}}]}, "0.2.3"),
        ({"starts": []}, None),
        ({"starts": [{"versions": {}}]}, None),
        ({"starts": [{"versions": {"groupwise": 2}}]}, None),
        ({"starts": [{"versions": {"groupwise": "mine"}}]}, None),
        ({"starts": ["0.1.0"]}, None),
        ({}, None),
    ],
    ids=str,
)
def test_the_newest_start_says_it_and_a_damaged_record_says_nothing(
    tmp_path: Path, environment: object, expected: str | None
) -> None:
    assert written_by(started_by(tmp_path, environment)) == expected
    assert written_by(RunFolder(tmp_path / "nowhere")) is None


@pytest.mark.parametrize("version", ["0.2.0", "0.2.9", "0.3.0", "0.4.0"])
def test_versions_from_the_first_that_is_read_to_the_installed_one_go_on(tmp_path: Path, version: str) -> None:
    require_known_version(started_by(tmp_path, {"starts": [{"versions": {"groupwise": version}}]}), installed="0.4.1")


@pytest.mark.parametrize(
    ("version", "expected"),
    [
        (
            "0.1.9",
            r"was written by Groupwise 0.1.9, whose configuration and checkpoints 0.4.1 does not read; go on with",
        ),
        ("0.5.0", r"was written by Groupwise 0.5.0, and 0.4.1 is installed; install 0.5.0 or later"),
        ("1.0.0", r"install 1.0.0 or later"),
    ],
)
def test_other_versions_are_named(tmp_path: Path, version: str, expected: str) -> None:
    with pytest.raises(ConfigError, match=expected) as error:
        require_known_version(
            started_by(tmp_path, {"starts": [{"versions": {"groupwise": version}}]}), installed="0.4.1"
        )
    assert "\n" not in str(error.value)
