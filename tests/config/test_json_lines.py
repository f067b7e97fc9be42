"""Files of one JSON object a line: read whole, or an error that names the line."""

from __future__ import annotations

import os
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
def test_a_missing_file_is_named(tmp_path: Path, data: bytes | None, says: str) -> None:
    if data is not None:
        (tmp_path / "a.jsonl").write_bytes(data)
    with pytest.raises(ConfigError, match=says):
        read_json_lines(tmp_path / "a.jsonl", "source.queries")


@pytest.mark.parametrize(
    ("line", "says"),
    [
        (
            rb'{"prompt": "\ud800 1"}',
            r"line 2: prompt = '\\ud800 1': character 1 is '\\ud800', half of a surrogate pair",
        ),
        (rb'{"turns": [{"content": "a \udfff"}]}', r"line 2: turns\[0\]\.content = .*character 3 is '\\udfff'"),
        (rb'{"\ud800": 1}', r"line 2: .*the key '\\ud800'"),
        (b'{"level": 1' + b"0" * 400 + b"}", "line 2: level = a number of about 400 digits: is beyond 64 bits"),
        (b'{"a": ' + b"[" * 300 + b"]" * 300 + b"}", "line 2: .*deeper inside each other"),
    ],
)
def test_what_no_text_can_hold_is_named_by_line_and_column(tmp_path: Path, line: bytes, says: str) -> None:
    (tmp_path / "a.jsonl").write_bytes(b'{"prompt": "\\ud83d\\ude00"}\n' + line)
    with pytest.raises(ConfigError, match=says):
        read_json_lines(tmp_path / "a.jsonl", "key")


def test_a_pipe_is_no_file(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "a.jsonl")
    with pytest.raises(ConfigError, match="there is no file"):
        read_json_lines(tmp_path / "a.jsonl", "key")
