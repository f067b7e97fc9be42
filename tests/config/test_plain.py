"""A table that no part of the program can use is refused where it is read, with the key, in one line and without
recursion.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from groupwise.config import Config, ConfigError, check_plain, parse_overrides, read_json, read_toml, validate
from groupwise.config.errors import Count, Length, Parallel, PerStep, Positive, Seconds, Seed, Width
from groupwise.config.plain import check_dots


class Numbers(Config):
    """One key of every type."""

    count: Count = 0
    positive: Positive = 1
    per_step: PerStep = 1
    length: Length = 1
    width: Width = 1
    parallel: Parallel = 1
    seed: Seed = 0
    seconds: Seconds = 1.0
    free: float = 0.0


def nested(levels: int) -> dict[str, Any]:
    tree: dict[str, Any] = {}
    for _ in range(levels):
        tree = {"a": tree}
    return tree


@pytest.mark.parametrize("name", [name for name in Numbers.model_fields if name != "free"])
@pytest.mark.parametrize("value", [-1, 10**10**2, 2**64, 10**400, float("nan"), float("inf"), "1"])
def test_every_number_has_an_end(name: str, value: Any) -> None:
    with pytest.raises(ConfigError, match=f"^here: {name} = "):
        validate(Numbers, {name: value}, "here")


@pytest.mark.parametrize("name", ["count", "positive", "per_step", "length", "width", "parallel"])
def test_the_most_that_is_allowed_is_said(name: str) -> None:
    with pytest.raises(ConfigError, match=rf"{name} = 9223372036854775807: must be less than or equal to \d+"):
        validate(Numbers, {name: 2**63 - 1})


@pytest.mark.parametrize(
    ("tree", "says"),
    [
        ({"a": {"b": [1, 10**50]}}, r"a\.b\[1\] = a number of about 50 digits: is beyond 64 bits"),
        ({"a": 10**400}, "a number of about 400 digits: is beyond 64 bits"),
        ({"a": 10**6000}, "a number of about 6000 digits"),
        ({"a": float("nan")}, "a = nan: is not a number"),
        ({"a": "x\ud800"}, r"a = 'x\\ud800': character 2 is '\\ud800', half of a surrogate pair"),
        ({"a": {"\ud800": 1}}, r"the key '\\ud800'"),
        ({"a": "x\0"}, "holds the character NUL"),
        (nested(100_000), "deeper inside each other than 64 levels"),
    ],
)
def test_what_cannot_be_worked_with_is_named(tree: dict[str, Any], says: str) -> None:
    with pytest.raises(ConfigError, match=says) as caught:
        check_plain(tree, "a.toml")
    assert len(str(caught.value)) < 500
    assert "\n" not in str(caught.value)


def test_what_people_write_passes() -> None:
    check_plain({"a": [1, 2.5, "é 🙂", None, True, {"b": [[]]}], "seed": 2**63 - 1, "inf": float("inf")})
    check_plain({"text": "a\0b", "number": float("nan")}, config=False)


FILES = {
    "deep.toml": ("a = " + "[" * 100_000, "too deep"),
    "tables.toml": (".".join("a" * 150) + " = 1", "deeper inside each other"),
    "header.toml": ("[" + ".".join("a" * 100_000) + "]\n", "more than 200 parts"),
    "dots.toml": (".".join("a" * 100_000) + " = 1", "more than 200 parts"),
    "integer.toml": ("seed = " + "9" * 6000, "more than 4,300 digits"),
    "long.toml": ("seed = " + "9" * 4000, "seed = a number of about 4000 digits"),
    "deep.json": ('{"a":' * 100_000, "too deep"),
    "closed.json": (json.dumps(nested(300)), "deeper inside each other"),
    "integer.json": ('{"seed": ' + "9" * 6000 + "}", "more than 4,300 digits"),
    "surrogate.json": ('{"a": "\\ud800"}', "half of a surrogate pair"),
}


@pytest.mark.parametrize("name", FILES)
def test_a_file_that_would_break_its_reader_is_named(name: str, tmp_path: Path) -> None:
    content, says = FILES[name]
    (tmp_path / name).write_text(content)
    with pytest.raises(ConfigError, match=says) as caught:
        (read_toml if name.endswith(".toml") else read_json)(tmp_path / name)
    assert str(caught.value).startswith(str(tmp_path / name))
    assert len(str(caught.value)) < 800


def test_a_pipe_a_device_and_a_file_with_a_hole_are_not_read(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe.toml")
    (tmp_path / "device.toml").symlink_to("/dev/zero")
    (tmp_path / "hole.toml").touch()
    os.truncate(tmp_path / "hole.toml", 2**40)
    for name, says in (
        ("pipe", "is no file"),
        ("device", "is no file"),
        ("hole", "more than the 256 MiB that are read"),
    ):
        with pytest.raises(ConfigError, match=says):
            read_toml(tmp_path / f"{name}.toml")


@pytest.mark.parametrize(
    "item",
    [
        "a=" + "[" * 100_000,
        "a=" + "9" * 6000,
        ".".join("a" * 60_000) + "=1",
        "a=1" + "0" * 400,
        "name=\udcff",
        "a=" + '{"b"=' * 90,
    ],
)
def test_an_item_of_the_command_line_is_refused_in_a_line(item: str) -> None:
    with pytest.raises(ConfigError) as caught:
        validate(Numbers, parse_overrides([item]))
    assert len(str(caught.value)) < 800


def test_long_texts_without_such_a_key_are_looked_at_once() -> None:
    """A search that began anew at every character would not come back."""
    for text in ("a" * 3_000_000, "." * 3_000_000, "a. " * 190 + '"' + "x" * 3_000_000, "1.5, " * 500_000):
        check_dots(text)
