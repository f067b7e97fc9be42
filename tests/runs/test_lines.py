from __future__ import annotations

import os
import random
import struct
from collections.abc import Callable
from pathlib import Path

import pytest

from groupwise.runs import each_line, folder, read_lines
from groupwise.runs.folder import parse


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
    found = each_line(tmp_path / "a.jsonl", remarks)
    assert next(found) == {"step": 1}
    assert remarks == [], "nothing is said before the end"
    assert list(found) == [{"step": 2}]
    assert len(remarks) == 1


PARTS = [b"0", b"1", b"7", b"90", b"-", b"+", b".", b"e", b"E", b"NaN", b"Infinity", b"e99", b"e308", b"1e309", b'"']
PARTS += [
    b"true",
    b"null",
    b"[",
    b"]",
    b"{",
    b"}",
    b":",
    b",",
    b" ",
    b"\t",
    b"\n",
    b"\x0b",
    b"\x00",
    b"\xff",
    b"\xc3\xa9",
]
PARTS += [b"\\u0041", b"\\ud800", b"\\ud83d\\ude00", b"\\n", b"\\x", b"\xef\xbb\xbf", b"\xed\xa0\x80", b"1" * 200, b"'"]
PARTS += [b'{"a": ', b'"a": 1', b"0.1", b"-0", b"-0.0", b"1.5e-7", b"9" * 20, b"123456.78901234567890123", b"[" * 250]


def test_both_parsers_are_of_one_opinion() -> None:
    """The fast one decides nothing that the slow one would have decided otherwise."""
    chance = random.Random(4)
    contents = [b"".join(chance.choices(PARTS, k=chance.randrange(1, 6))) for _ in range(5_000)]
    numbers = [struct.unpack("d", chance.randbytes(8))[0] for _ in range(5_000)]
    contents += [repr(number).encode() for number in numbers]
    contents += [f"{chance.randrange(10**25)}e{chance.randrange(-330, 330)}".encode() for _ in range(5_000)]
    contents += [f"{chance.random():.{chance.randrange(1, 30)}f}".encode() for _ in range(5_000)]
    assert [content for content in contents if _said(parse, content) != _said(_slowly, content)] == []
    assert sum(_said(parse, content) != "refused" for content in contents) > 15_000


def _slowly(content: bytes) -> object:
    return folder._DECODER.decode(content.decode("utf-8", errors="replace"))


def _said(read: Callable[[bytes], object], content: bytes) -> str:
    try:
        return repr(read(content))
    except (ValueError, RecursionError):
        return "refused"


def test_lines_without_a_number_that_is_not_finite_are_read_fast(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(folder, "_DECODER", None)
    assert parse(b'{"step": 1, "learning_rate": 2.5e-05, "text": "caf\xc3\xa9"}') == {
        "step": 1,
        "learning_rate": 2.5e-05,
        "text": "caf\u00e9",
    }
