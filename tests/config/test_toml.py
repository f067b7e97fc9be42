"""Files that cannot be read are named, with the line."""

from __future__ import annotations

from pathlib import Path

import pytest

from groupwise.config import ConfigError, read_json, read_toml


def test_a_file_is_read(tmp_path: Path):
    (tmp_path / "a.toml").write_text("[trust]\nkind = 'clip'\n", encoding="utf-8")
    (tmp_path / "a.json").write_text('{"seed": 1}', encoding="utf-8")
    assert read_toml(tmp_path / "a.toml") == {"trust": {"kind": "clip"}}
    assert read_json(tmp_path / "a.json") == {"seed": 1}


def test_what_cannot_be_read_says_where(tmp_path: Path):
    (tmp_path / "bad.toml").write_text("seed = 1\ntrust = \n", encoding="utf-8")
    (tmp_path / "bad.json").write_text("[1, 2]", encoding="utf-8")
    (tmp_path / "binary.toml").write_bytes(b"\xff\xfe\x00")
    for name, words in {"bad.toml": "line 2", "absent.toml": "no such file", "binary.toml": "cannot be read"}.items():
        with pytest.raises(ConfigError, match=words) as caught:
            read_toml(tmp_path / name)
        assert name in str(caught.value)
    with pytest.raises(ConfigError, match="holds list"):
        read_json(tmp_path / "bad.json")


def test_a_mark_of_the_encoding_is_no_part_of_the_file(tmp_path: Path):
    (tmp_path / "a.toml").write_bytes(b"\xef\xbb\xbfseed = 3\n")
    assert read_toml(tmp_path / "a.toml") == {"seed": 3}
