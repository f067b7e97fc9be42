"""One reader of tables: the same rows from every form of file, and one line on the row that cannot be read."""

import json
from pathlib import Path

import pyarrow
import pyarrow.parquet
import pytest

from groupwise.config import ConfigError, read_rows

ROWS = [{"prompt": "2, 2", "answer": "4"}, {"prompt": 'say "hi"\nnow', "answer": "hi"}]


def write(path: Path) -> Path:
    texts = {
        ".jsonl": "\n\n".join(map(json.dumps, ROWS)),
        ".json": json.dumps(ROWS),
        ".csv": '\ufeffprompt,answer\n"2, 2",4\n\n"say ""hi""\nnow",hi\n',
        ".tsv": 'prompt\tanswer\r\n2, 2\t4\r\n"say ""hi""\nnow"\thi\r\n',
    }
    if path.suffix == ".parquet":
        pyarrow.parquet.write_table(pyarrow.Table.from_pylist(ROWS), path)
    else:
        path.write_bytes(texts[path.suffix.lower()].encode())
    return path


@pytest.mark.parametrize("name", ["a.jsonl", "a.json", "a.csv", "a.tsv", "a.parquet", "A.CSV"])
def test_every_form_gives_the_same_rows(name: str, tmp_path: Path) -> None:
    path = tmp_path / name
    if name == "A.CSV":
        path.write_bytes(write(tmp_path / "b.csv").read_bytes())
    else:
        write(path)
    assert [row for _, row in read_rows(path, "key")] == ROWS


def test_a_text_file_has_a_prompt_a_line(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("one\n\n two \n", encoding="utf-8")
    assert read_rows(tmp_path / "a.txt", "key") == [
        (f"{tmp_path}/a.txt, line 1", {"prompt": "one"}),
        (f"{tmp_path}/a.txt, line 3", {"prompt": "two"}),
    ]


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        (
            "a.docx",
            b"x",
            r"'.docx'; write a file that ends in one of .csv, .json, .jsonl, .parquet, .tsv, .txt",
        ),
        ("a", b"x", r"ends in ''; write a file that ends in"),
        (
            "a.csv",
            b"prompt,answer\nonly\n",
            r"line 2: has 1 cells, and the first line names 2 columns",
        ),
        ("a.csv", b"prompt,prompt\na,b\n", r"line 1: the columns are \['prompt', 'prompt'\]; give each a name"),
        ("a.csv", b"prompt,answer\n", r"key: .*a.csv' is empty"),
        ("a.csv", b"\xff\xfe", r"a.csv: is no UTF-8"),
        ("a.tsv", b"prompt\tanswer\na\tb\tc\n", r"line 2: has 3 cells"),
        ("a.json", b'{"prompt": "a"}', r"holds a dict; write a list of objects"),
        ("a.json", b"[1]", r"item 0: is a int; write a list of objects"),
        ("a.json", b"[", r"a.json: is no JSON"),
        ("a.json", b'[{"prompt": "\xff"}]', r"a.json: is no JSON.*byte 0xff"),
        ("a.parquet", b"x", r"cannot be read as Parquet"),
        ("a.txt", b"\n\n", r"is empty"),
    ],
)
def test_what_cannot_be_read_is_told_in_one_line(name: str, content: bytes, message: str, tmp_path: Path) -> None:
    (tmp_path / name).write_bytes(content)
    with pytest.raises(ConfigError, match=message):
        read_rows(tmp_path / name, "key")


def test_a_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    for ending in ("csv", "json", "jsonl", "parquet", "txt"):
        with pytest.raises(ConfigError, match=rf"key: there is no file '.*nowhere.{ending}'"):
            read_rows(tmp_path / f"nowhere.{ending}", "key")


def test_a_mark_of_the_encoding_is_left_out(tmp_path: Path) -> None:
    (tmp_path / "a.json").write_bytes(b'\xef\xbb\xbf[{"prompt": "x"}]')
    assert [row for _, row in read_rows(tmp_path / "a.json", "key")] == [{"prompt": "x"}]
