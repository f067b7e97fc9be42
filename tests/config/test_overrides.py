"""`key=value` items: dotted keys, TOML values, bare words."""

from __future__ import annotations

import pytest

from groupwise.config import ConfigError, parse_overrides, parse_value


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


def test_an_inline_table_joins_the_keys_beside_it():
    assert parse_overrides(["trust.sigma=1", 'trust={kind="gaussian"}']) == {"trust": {"sigma": 1, "kind": "gaussian"}}


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
