from __future__ import annotations

import json

import pytest

from groupwise.config import ConfigError
from groupwise.domain.language.source.base import Files, read

ROWS = [{"prompt": f"{number} + 1 =", "answer": str(number + 1)} for number in range(6)]


def test_jsonl_json_and_parquet_hold_the_same_rows(tmp_path):
    import pyarrow
    import pyarrow.parquet

    (tmp_path / "a.jsonl").write_text("\n".join(json.dumps(row) for row in ROWS) + "\n\n")
    (tmp_path / "a.json").write_text(json.dumps(ROWS))
    pyarrow.parquet.write_table(pyarrow.Table.from_pylist(ROWS), tmp_path / "a.parquet")
    for ending in ("jsonl", "json", "parquet"):
        assert Files(paths=(str(tmp_path / f"a.{ending}"),), shuffle=False).rows(None, seed=0) == ROWS


def test_shuffling_is_a_function_of_the_seed_and_keeps_every_row(tmp_path):
    (tmp_path / "a.json").write_text(json.dumps(ROWS))
    source = Files(paths=(str(tmp_path / "a.json"),), held_out_paths=(str(tmp_path / "a.json"),))
    assert source.rows(None, 1) == source.rows(None, 1) != ROWS
    assert sorted(map(str, source.rows(None, 1))) == sorted(map(str, ROWS))
    assert len(source.held_out_rows(2, 1)) == 2


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("a.txt", "", r"ends in '.txt'; write a file that ends in one of .jsonl, .json, .parquet"),
        ("a.jsonl", '{"prompt": "x"}\n{"prompt": ', r"a.jsonl, line 2: is no JSON"),
        ("a.jsonl", '["x"]', r"line 1: is a list; write one JSON object a line"),
        ("a.jsonl", "\n", r"data.source.paths: '.*a.jsonl' is empty"),
        ("a.json", '[["x"]]', r"item 0: is of type list; a row is an object"),
        ("a.json", "[" * 100_000, r"a.json is no JSON in UTF-8"),
        ("a.json", '{"prompt": "x"}', r"holds a dict; a .json file of prompts is a list of objects"),
        ("a.parquet", "nonsense", r"cannot be read as Parquet"),
    ],
)
def test_what_cannot_be_read_says_where(tmp_path, name, text, message):
    (tmp_path / name).write_text(text)
    with pytest.raises(ConfigError, match=message):
        read(tmp_path / name)


def test_a_missing_file_is_named(tmp_path):
    with pytest.raises(ConfigError, match=r"data.source.paths: there is no file '.*b.jsonl'"):
        Files(paths=(str(tmp_path / "b.jsonl"),)).rows(None, 0)


@pytest.mark.parametrize("ending", ["jsonl", "json"])
def test_bytes_that_are_no_text_are_named_and_a_mark_of_the_encoding_is_left_out(tmp_path, ending):
    path, text = tmp_path / f"a.{ending}", b'{"prompt": "%s"}' if ending == "jsonl" else b'[{"prompt": "%s"}]'
    path.write_bytes(text % b"\xff")
    with pytest.raises(ConfigError, match=rf"a.{ending}.* is no .*UTF-8.*byte 0xff"):
        read(path)
    path.write_bytes(b"\xef\xbb\xbf" + text % b"x")
    assert read(path) == [{"prompt": "x"}]


def test_only_a_line_feed_ends_a_line(tmp_path):
    rows = [{"prompt": "one\u2028line\u0085still"}, {"prompt": "the next"}]
    (tmp_path / "a.jsonl").write_text("\n".join(json.dumps(row, ensure_ascii=False) for row in rows), encoding="utf-8")
    assert read(tmp_path / "a.jsonl") == rows
