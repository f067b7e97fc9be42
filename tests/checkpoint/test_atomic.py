"""A write is wholly there or not there at all."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from groupwise.checkpoint import clear_torn, new_folder, torn, write_file


def test_a_failed_block_leaves_nothing(tmp_path: Path) -> None:
    def interrupted() -> None:
        with new_folder(tmp_path / "a") as partial:
            (partial / "x").write_text("half")
            assert torn(tmp_path) == [partial]
            raise RuntimeError("stop")

    with pytest.raises(RuntimeError, match="stop"):
        interrupted()
    assert list(tmp_path.iterdir()) == []


def test_a_folder_appears_only_at_the_end(tmp_path: Path) -> None:
    with new_folder(tmp_path / "deep" / "a") as partial:
        (partial / "x").write_text("1")
        assert not (tmp_path / "deep" / "a").exists()
    assert (tmp_path / "deep" / "a" / "x").read_text() == "1"
    assert torn(tmp_path / "deep") == []


@pytest.mark.parametrize(("replace", "kept"), [(False, "first"), (True, "second")])
def test_the_second_writer_of_a_folder(tmp_path: Path, replace: bool, kept: str) -> None:
    for text in ("first", "second"):
        with new_folder(tmp_path / "a", replace=replace) as partial:
            (partial / "x").write_text(text)
    assert (tmp_path / "a" / "x").read_text() == kept
    assert torn(tmp_path) == []


def test_a_file_is_replaced_whole(tmp_path: Path) -> None:
    write_file(tmp_path / "a", "old")
    with pytest.raises(TypeError):
        write_file(tmp_path / "a", None)  # type: ignore[arg-type]
    assert (tmp_path / "a").read_text() == "old"
    assert [path.name for path in tmp_path.iterdir()] == ["a"]


def test_leftovers_are_removed_at_any_depth_and_nothing_else_is(tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "kept").touch()
    run = tmp_path / "run"
    for name in ("models/.step-3.partial-0123abcd/weights", "controls/a/.best.partial-01234567/x", "rollouts/step-1"):
        (run / name).mkdir(parents=True)
    (run / ".config.json.partial-89abcdef").touch()
    (run / ".link.partial-89abcdef").symlink_to(outside)
    others = {".hidden", ".a.partial-mine", "b.partial-0123abcd", ".partial-0123abcd"}
    for name in others:
        (run / "models" / name).touch()
    clear_torn(run)
    assert {path.name for path in run.rglob("*") if path.name.startswith(".") or "partial" in path.name} == others
    assert (run / "rollouts" / "step-1").is_dir()
    assert (outside / "kept").exists()


def test_half_a_surrogate_pair_is_written_as_json_escapes_it(tmp_path: Path) -> None:
    write_file(tmp_path / "a.json", json.dumps({"text": "a \ud800 é"}, ensure_ascii=False))
    assert json.loads((tmp_path / "a.json").read_text(encoding="utf-8")) == {"text": "a \ud800 é"}
