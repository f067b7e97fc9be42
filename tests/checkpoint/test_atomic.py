"""A write is wholly there or not there at all."""

from __future__ import annotations

from pathlib import Path

import pytest

from groupwise.checkpoint import new_folder, torn, write_file


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
