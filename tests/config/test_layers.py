"""Layers: later wins, and a changed kind starts its table anew."""

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, ClassVar, Literal

import pytest
from pydantic import Field

from groupwise.config import (
    Config,
    ConfigError,
    difference,
    merge,
    parse_overrides,
    parse_value,
    read_json,
    read_json_lines,
    read_toml,
    validate,
)


def test_tables_merge_key_by_key_and_leave_their_sources_alone():
    base = {"train": {"num_steps": 5, "stop": ["a"]}, "seed": 0}
    over = {"train": {"stop": ["b"]}}
    assert merge(base, over) == {"train": {"num_steps": 5, "stop": ["b"]}, "seed": 0}
    assert base == {"train": {"num_steps": 5, "stop": ["a"]}, "seed": 0}
    assert over == {"train": {"stop": ["b"]}}
    merge(base, {})["train"]["stop"].append("c")
    merge(base, over)["train"]["stop"].append("c")
    assert (base["train"]["stop"], over["train"]["stop"]) == (["a"], ["b"])


def test_none_takes_a_table_back_and_is_a_value_elsewhere():
    assert merge({"credit": {"decay": {"gamma": 0.9}}, "limit": 3}, {"credit": {"decay": None}, "limit": None}) == {
        "credit": {},
        "limit": None,
    }


# `key=value` items: dotted keys, TOML values, bare words.


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("5", 5),
        ("1e-5", 1e-5),
        (".3", 0.3),
        ("-1.", -1.0),
        ("true", True),
        ("null", None),
        ("gaussian", "gaussian"),
        ("dapo+tis", "dapo+tis"),
        ("/data/a b.jsonl", "/data/a b.jsonl"),
        ("2024-01-01", "2024-01-01"),
        ("'5'", "5"),
        ('"a=b"', "a=b"),
        ("[1, 2.5]", [1, 2.5]),
        ("[clip, 'a, b', 3, [x]]", ["clip", "a, b", 3, ["x"]]),
        ('{kind = "linear", start = 1}', {"kind": "linear", "start": 1}),
        ("", ""),
    ],
)
def test_values(text: str, value: object):
    assert parse_value(text) == value
    assert type(parse_value(text)) is type(value)


def test_items_nest_and_the_later_wins():
    items = ["trust.kind=gaussian", "trust.sigma=0.3", "seed=1", "seed=2", "rewards.'my.reward'.weight=2"]
    assert parse_overrides(items) == {
        "trust": {"kind": "gaussian", "sigma": 0.3},
        "seed": 2,
        "rewards": {"my.reward": {"weight": 2}},
    }


@pytest.mark.parametrize(
    ("items", "words"),
    [
        (["trust"], ["'trust'", "key=value"]),
        (["=3"], ["'=3'", "key=value"]),
        (["a b=3"], ["'a b'", "dots"]),
        (["stop=[1,"], ["'[1,'", "brackets"]),
        (["trust=1", "trust.sigma=2"], ["'trust.sigma=2'", "table"]),
        (["trust.sigma=2", "trust=1"], ["'trust=1'", "table"]),
    ],
)
def test_what_cannot_be_read_is_named(items: list[str], words: list[str]):
    with pytest.raises(ConfigError) as caught:
        parse_overrides(items)
    assert all(word in str(caught.value) for word in words)


# Differences of configurations as dotted keys.


def test_changed_added_and_removed_keys():
    before = {"trust": {"kind": "clip", "low": 0.2}, "credit": {}, "seed": 0}
    after = {"trust": {"kind": "gaussian", "sigma": 0.3}, "credit": {"decay": {"gamma": 0.9}}, "seed": 0}
    assert difference(before, after) == {
        "trust.kind": ("clip", "gaussian"),
        "trust.low": (0.2, None),
        "trust.sigma": (None, 0.3),
        "credit.decay.gamma": (None, 0.9),
    }
    assert difference(after, after) == {}


def test_tables_in_lists_are_told_apart_by_their_place():
    before = {"stages": [{"name": "a", "num_steps": 3}, {"name": "b"}], "stop": ["x"]}
    after = {"stages": [{"name": "a", "num_steps": 4}], "stop": ["y"]}
    assert difference(before, after) == {
        "stages[0].num_steps": (3, 4),
        "stages[1].name": ("b", None),
        "stop": (["x"], ["y"]),
    }


# A table that does not say its kind is of the default kind of its key.


class Inner(Config):
    kind: Literal["inner"] = "inner"
    size: int = 1


class Other(Config):
    kind: Literal["other"] = "other"
    size: int = 2


Part = Annotated[Inner | Other, Field(discriminator="kind")]


class Middle(Config):
    kind: Literal["middle"] = "middle"
    part: Part = Other()
    parts: dict[str, Part] = Field(default_factory=dict)


class Whole(Config):
    middle: Middle = Middle()
    list: tuple[Middle, ...] = ()
    free: Part | None = None


def test_kinds_are_filled_at_every_depth_where_a_default_has_one():
    tree = {"middle": {"part": {"size": 5}}, "list": [{"part": {"size": 6}}]}
    filled = merge({}, tree, Whole)
    assert filled == {
        "middle": {"kind": "middle", "part": {"kind": "other", "size": 5}},
        "list": [{"part": {"kind": "other", "size": 6}}],
    }
    assert tree == {"middle": {"part": {"size": 5}}, "list": [{"part": {"size": 6}}]}
    assert validate(Whole, tree).middle.part == Other(size=5)


def test_tables_with_a_kind_without_default_or_unknown_stay_as_they_are():
    tree = {
        "middle": {"kind": "middle", "parts": {"a": {"size": 5}}},
        "free": {"size": 1},
        "unknown": {"size": 1},
        "list": 3,
    }
    assert merge({}, tree, Whole) == tree


def test_naming_the_default_kind_again_keeps_the_keys_beside_it():
    base = merge({}, {"middle": {"part": {"size": 5}}}, Whole)
    assert merge(base, {"middle": {"part": {"kind": "other"}}})["middle"]["part"] == {"kind": "other", "size": 5}


def test_a_kind_that_nobody_can_write_is_not_filled_in():
    class Entry(Config):
        kind: ClassVar[str] = "entry"
        size: int = 1

    class Chain(Config):
        entry: Entry | None = Entry()

    assert merge({}, {"entry": {"size": 2}}, Chain(), Chain) == {"entry": {"size": 2}}


def test_a_word_where_a_table_is_meant_is_its_kind_and_a_text_where_one_may_stand_is_itself():
    class Other(Config):
        kind: Literal["other"] = "other"

    class Table(Config):
        part: Inner | Other = Inner()
        several: tuple[Inner | Other, ...] = ()
        named: Mapping[str, Inner | None] = Field(default_factory=dict)
        text: str | Inner = ""
        fixed: Literal["inner"] | Inner = "inner"

    written = {"part": "other", "several": ["inner", {"size": 3}], "named": {"a": "inner"}, "text": "inner"}
    filled = merge({}, {**written, "fixed": "inner"}, Table)
    assert filled == {
        "part": {"kind": "other"},
        "several": [{"kind": "inner"}, {"size": 3}],
        "named": {"a": {"kind": "inner"}},
        "text": "inner",
        "fixed": "inner",
    }
    assert merge({}, {"part": "no_kind"}, Table) == {"part": {"kind": "no_kind"}}


def test_a_word_over_a_table_of_its_kind_keeps_the_keys_of_the_table():
    below = {"middle": {"part": {"kind": "other", "size": 5}}}
    for written in ("other", {"kind": "other"}):
        assert merge(below, {"middle": {"part": written}}, Whole) == {"middle": {"kind": "middle", **below["middle"]}}


# Files that cannot be read are named, with the line.


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


# Files of one JSON object a line: read whole, or an error that names the line.


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
