"""A table that does not say its kind is of the default kind of its key."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, ClassVar, Literal

from pydantic import Field

from groupwise.config import Config, fill_kinds, merge, validate, words_as_kinds


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
    filled = fill_kinds(Whole, tree)
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
    assert fill_kinds(Whole, tree) == tree


def test_naming_the_default_kind_again_keeps_the_keys_beside_it():
    base = fill_kinds(Whole, {"middle": {"part": {"size": 5}}})
    assert merge(base, {"middle": {"part": {"kind": "other"}}})["middle"]["part"] == {"kind": "other", "size": 5}


def test_a_kind_that_nobody_can_write_is_not_filled_in():
    class Entry(Config):
        kind: ClassVar[str] = "entry"
        size: int = 1

    class Chain(Config):
        entry: Entry | None = Entry()

    assert fill_kinds(Chain, {"entry": {"size": 2}}, Chain()) == {"entry": {"size": 2}}


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
    filled = fill_kinds(Table, {**written, "fixed": "inner"})
    assert filled == {
        "part": {"kind": "other"},
        "several": [{"kind": "inner"}, {"size": 3}],
        "named": {"a": {"kind": "inner"}},
        "text": "inner",
        "fixed": "inner",
    }
    assert fill_kinds(Table, {"part": "no_kind"}) == {"part": {"kind": "no_kind"}}


def test_a_word_over_a_table_of_its_kind_keeps_the_keys_of_the_table():
    below = {"middle": {"part": {"kind": "other", "size": 5}}}
    for written in ("other", {"kind": "other"}):
        over = words_as_kinds(Whole, {"middle": {"part": written}}, below)
        assert merge(below, over) == below
    assert words_as_kinds(Whole, {"middle": {"part": {"size": 6}}}, below) == {"middle": {"part": {"size": 6}}}
