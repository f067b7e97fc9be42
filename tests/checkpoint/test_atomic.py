"""A write replaces the old content in one step, or changes nothing."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from groupwise.checkpoint import clear_unfinished_writes, new_folder, unfinished_writes, write_file


def test_a_new_file_takes_nobodys_place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_file(tmp_path / "a", "first", replace=False)
    with pytest.raises(FileExistsError):
        write_file(tmp_path / "a", "second", replace=False)
    assert (tmp_path / "a").read_text() == "first"

    def refuse(*paths: Path) -> None:
        raise PermissionError("this file system has no hard links")

    monkeypatch.setattr("os.link", refuse)
    write_file(tmp_path / "b", "first", replace=False)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a", "b"]


def test_a_failed_block_leaves_nothing(tmp_path: Path) -> None:
    def interrupted() -> None:
        with new_folder(tmp_path / "a") as partial:
            (partial / "x").write_text("half")
            assert unfinished_writes(tmp_path) == [partial]
            raise RuntimeError("stop")

    with pytest.raises(RuntimeError, match="stop"):
        interrupted()
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(("replace", "expected_text"), [(False, "first"), (True, "second")])
def test_the_second_writer_of_a_folder(tmp_path: Path, replace: bool, expected_text: str) -> None:
    for text in ("first", "second"):
        with new_folder(tmp_path / "a", replace=replace) as partial:
            (partial / "x").write_text(text)
    assert (tmp_path / "a" / "x").read_text() == expected_text
    assert unfinished_writes(tmp_path) == []


def test_leftovers_are_removed_at_any_depth_and_nothing_else_is(tmp_path: Path) -> None:
    outside_folder = tmp_path / "outside"
    outside_folder.mkdir()
    (outside_folder / "kept").touch()
    run = tmp_path / "run"
    for name in ("models/.step-3.partial-0123abcd/weights", "controls/a/.best.partial-01234567/x", "rollouts/step-1"):
        (run / name).mkdir(parents=True)
    (run / ".config.json.partial-89abcdef").touch()
    (run / ".link.partial-89abcdef").symlink_to(outside_folder)
    unrelated_names = {".hidden", ".a.partial-mine", "b.partial-0123abcd", ".partial-0123abcd"}
    for name in unrelated_names:
        (run / "models" / name).touch()
    clear_unfinished_writes(run)
    assert {
        path.name for path in run.rglob("*") if path.name.startswith(".") or "partial" in path.name
    } == unrelated_names
    assert (run / "rollouts" / "step-1").is_dir()
    assert (outside_folder / "kept").exists()


def test_half_a_surrogate_pair_is_written_as_json_escapes_it(tmp_path: Path) -> None:
    write_file(tmp_path / "a.json", json.dumps({"text": "a \ud800 é"}, ensure_ascii=False))
    assert json.loads((tmp_path / "a.json").read_text(encoding="utf-8")) == {"text": "a \ud800 é"}
