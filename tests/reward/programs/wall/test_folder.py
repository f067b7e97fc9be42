"""Whatever a program leaves in its folder is measured without waiting and removed without following."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

from groupwise.reward.programs.wall.folder import remove, used_mb


def size(path: Path) -> float:
    place = os.open(path, os.O_RDONLY)
    try:
        return used_mb(place)
    finally:
        os.close(place)


def test_all_kinds_of_things_are_removed_and_nothing_else(tmp_path: Path) -> None:
    outside, folder = tmp_path / "outside", tmp_path / "folder"
    (outside / "inner").mkdir(parents=True)
    (outside / "file").write_text("stays")
    folder.mkdir()
    os.mkfifo(folder / "fifo")
    (folder / "link").symlink_to(outside)
    (folder / "a" / "b").mkdir(parents=True)
    (folder / "a" / "b" / "link").symlink_to(outside / "inner")
    os.link(outside / "file", folder / "a" / "hard")
    for shut in (folder / "a" / "b", folder / "a", folder):
        shut.chmod(0)
    assert remove(str(folder))
    assert not folder.exists()
    assert (outside / "file").read_text() == "stays"
    assert (outside / "inner").is_dir()


def test_folders_nested_deeper_than_any_path_or_call_are_removed() -> None:
    # In memory: some disks take milliseconds for each.
    folder = Path(tempfile.mkdtemp(dir="/dev/shm"))
    place = os.open(folder, os.O_RDONLY)
    for _ in range(2500):
        os.mkdir("d", dir_fd=place)
        inner = os.open("d", os.O_RDONLY, dir_fd=place)
        os.close(place)
        place = inner
    os.close(place)
    assert size(folder) == float("inf")
    assert remove(str(folder), seconds=300.0)
    assert not folder.exists()


def test_what_is_written_counts_and_what_links_point_to_does_not(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    for number in range(3):
        (tmp_path / "a" / str(number)).write_bytes(b"x" * 2**20)
    (tmp_path / "link").symlink_to("/usr")
    assert 3.0 <= size(tmp_path) < 3.2


def test_no_time_is_no_removal(tmp_path: Path) -> None:
    (tmp_path / "folder" / "a").mkdir(parents=True)
    assert not remove(str(tmp_path / "folder"), seconds=-1.0)
