from __future__ import annotations

import os
from pathlib import Path

import pytest

from groupwise.runs import each_line, read_lines


def test_every_whole_object_is_read_and_the_rest_is_said(tmp_path: Path) -> None:
    path = tmp_path / "metrics.jsonl"
    path.write_bytes(
        b'{"step": 1, "x": NaN, "y": -Infinity}\n\n\x00\xff{"a\n7\nnull\n{"step": 2, "text": "\xff"}\n'
        + b"[" * 5000
        + b'\n{"step": 3'
    )
    lines = read_lines(path)
    assert lines.rows == [{"step": 1, "x": None, "y": None}, {"step": 2, "text": "\ufffd"}]
    assert lines.remarks == [
        "metrics.jsonl: lines 3, 4, 5, 7 are no JSON objects and are left out",
        "metrics.jsonl: the last line is cut off and is left out",
    ]


def test_a_last_line_that_lacks_only_its_end_counts(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_text('{"step": 1}\n{"step": 2}')
    assert read_lines(tmp_path / "a.jsonl").rows == [{"step": 1}, {"step": 2}]
    assert not read_lines(tmp_path / "a.jsonl").remarks


def test_many_broken_lines_are_one_sentence(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_text("x\n" * 100)
    assert read_lines(tmp_path / "a.jsonl").remarks == [
        "a.jsonl: lines 1, 2, 3, 4, 5 and 95 more are no JSON objects and are left out"
    ]


def test_what_is_no_file_is_said(tmp_path: Path) -> None:
    assert read_lines(tmp_path).remarks == [f"{tmp_path.name} cannot be read (is no file)"]
    assert read_lines(tmp_path / "none").remarks == ["none is not there"]


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
def test_a_file_that_may_not_be_read_is_said(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").touch(mode=0)
    assert read_lines(tmp_path / "a.jsonl").remarks == ["a.jsonl cannot be read (Permission denied)"]


def test_a_file_is_read_as_it_is_asked_for(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_text('{"step": 1}\nbroken\n{"step": 2}\n')
    remarks: list[str] = []
    lines = each_line(tmp_path / "a.jsonl", remarks)
    assert next(lines) == {"step": 1}
    assert remarks == [], "nothing is said before the end"
    assert list(lines) == [{"step": 2}]
    assert len(remarks) == 1
