"""Files of one JSON object a line: read whole, or an error that names the line."""

from __future__ import annotations

from pathlib import Path

import pytest

from groupwise.config import ConfigError, read_json_lines


def test_only_a_line_feed_ends_a_line(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    path.write_bytes('\ufeff{"text": "one\u2028line\u0085still"}\r\n  \r\n{"text": "☃"}'.encode())
    assert [row for _, row in read_json_lines(path, "key")] == [{"text": "one\u2028line\u0085still"}, {"text": "☃"}]


@pytest.mark.parametrize(
    ("data", "says"),
    [
        (b'{"a": 1}\n{"a": \n', r"a\.jsonl, line 2: is no JSON"),
        (b'{"a": 1}\n\n[1]\n', r"a\.jsonl, line 3: is a list; write one JSON object a line"),
        (b"null\n", r"line 1: is a NoneType"),
        (b'{"a": "\xff"}\n', r"line 1: is no UTF-8"),
        (b"[" * 100_000, r"line 1: is no JSON"),
        (b"1" * 5000, r"line 1: is no JSON"),  # Python reads whole numbers of 4300 digits at most
        (b" \n\n", r"source\.queries: '.*a\.jsonl' is empty"),
        (None, r"source\.queries: there is no file '.*a\.jsonl'"),
    ],
)
def test_what_is_no_such_file_is_named(tmp_path: Path, data: bytes | None, says: str) -> None:
    if data is not None:
        (tmp_path / "a.jsonl").write_bytes(data)
    with pytest.raises(ConfigError, match=says):
        read_json_lines(tmp_path / "a.jsonl", "source.queries")
