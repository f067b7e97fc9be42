"""The list of the configurations that a user made: an entry holds only where the configuration lies."""

from __future__ import annotations

import json
import os
import shutil
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from groupwise.runs import authored_configs
from groupwise.runs.authored_configs import authored_list, is_authored, note_authored

CONFIG = [{"seed": 1, "rewards": {"r": {"path": "mine:f"}}}]


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    file = tmp_path / "runs" / "a" / "config.json"
    file.parent.mkdir(parents=True)
    file.write_text(json.dumps(CONFIG))
    return file


def test_a_noted_config_is_recognised_and_a_changed_one_is_not(run: Path) -> None:
    assert not is_authored(run, CONFIG)
    assert note_authored(run, CONFIG) == ""
    assert note_authored(run, CONFIG) == ""
    assert is_authored(run, CONFIG)
    assert is_authored(run, json.loads(json.dumps(CONFIG)))
    assert not is_authored(run, [{**CONFIG[0], "seed": 2}])
    assert len(authored_list().read_bytes().splitlines()) == 1


def test_a_config_may_be_noted_before_its_file_exists(run: Path) -> None:
    run.unlink()
    assert note_authored(run, CONFIG) == ""
    assert is_authored(run, CONFIG)


def test_a_folder_elsewhere_is_another_one(run: Path, tmp_path: Path) -> None:
    note_authored(run, CONFIG)
    shutil.copytree(run.parent, tmp_path / "copied")
    assert not is_authored(tmp_path / "copied" / "config.json", CONFIG)
    linked = tmp_path / "linked"
    linked.mkdir()
    (linked / "config.json").symlink_to(run)
    assert not is_authored(linked / "config.json", CONFIG)
    (linked / "hard.json").hardlink_to(run)
    assert not is_authored(linked / "hard.json", CONFIG)
    # The same folder by another name is the same folder.
    (tmp_path / "name").symlink_to(run.parent)
    assert is_authored(tmp_path / "name" / "config.json", CONFIG)


def test_another_folder_at_the_same_place_is_another_one(run: Path, tmp_path: Path) -> None:
    note_authored(run, CONFIG)
    shutil.copytree(run.parent, tmp_path / "theirs")
    run.parent.rename(tmp_path / "mine")
    assert not is_authored(tmp_path / "mine" / "config.json", CONFIG)
    (tmp_path / "theirs").rename(run.parent)
    assert not is_authored(run, CONFIG)


def test_the_list_is_its_owners_alone(run: Path) -> None:
    note_authored(run, CONFIG)
    assert stat.S_IMODE(authored_list().stat().st_mode) == 0o600
    assert stat.S_IMODE(authored_list().parent.stat().st_mode) == 0o700
    authored_list().chmod(0o620)
    assert not is_authored(run, CONFIG)
    assert "write chmod 600" in note_authored(run, CONFIG)


def test_a_list_that_is_a_link_is_not_read(run: Path, tmp_path: Path) -> None:
    note_authored(run, CONFIG)
    authored_list().rename(tmp_path / "elsewhere")
    authored_list().symlink_to(tmp_path / "elsewhere")
    assert not is_authored(run, CONFIG)


def test_a_list_that_cannot_be_written_is_told(run: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "file"))
    assert "cannot be written" in note_authored(run, CONFIG)
    assert not is_authored(run, CONFIG)


def test_the_list_of_authored_configs_is_bounded_and_keeps_the_newest(
    run: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(authored_configs, "MOST", 5)
    for seed in range(14):
        note_authored(run, [seed])
    lines = authored_list().read_bytes().splitlines(keepends=True)
    assert 5 <= len(lines) <= 10
    assert {len(line) for line in lines} == {65}
    assert is_authored(run, [13])
    assert is_authored(run, [9])
    assert not is_authored(run, [0])


def test_a_line_that_was_cut_off_costs_itself_alone(run: Path) -> None:
    note_authored(run, [1])
    with authored_list().open("ab") as file:
        file.write(b"abc\n\xff\x00\n")
    note_authored(run, [2])
    assert is_authored(run, [1])
    assert is_authored(run, [2])


# Its children are forked from a small process: each copies what the process of the tests would hold.
WRITERS = """
import multiprocessing, sys
from pathlib import Path
from groupwise.runs.authored_configs import note_authored

def note_some(start):
    for seed in range(start, start + 25):
        note_authored(Path(sys.argv[1]), [seed])

context = multiprocessing.get_context("fork")
processes = [context.Process(target=note_some, args=(start,)) for start in range(0, 200, 25)]
for process in processes:
    process.start()
for process in processes:
    process.join()
"""


@pytest.mark.slow
def test_processes_that_write_at_once_lose_nothing(run: Path) -> None:
    subprocess.run([sys.executable, "-c", WRITERS, run], check=True)
    assert all(is_authored(run, [seed]) for seed in range(200))
    assert len(authored_list().read_bytes().splitlines()) == 200


@pytest.mark.skipif(os.geteuid() != 0, reason="giving a file away needs root")
def test_a_list_of_somebody_else_is_not_read(run: Path) -> None:
    note_authored(run, CONFIG)
    os.chown(authored_list(), 12345, 12345)
    assert not is_authored(run, CONFIG)
