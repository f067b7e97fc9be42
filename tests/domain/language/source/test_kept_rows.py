"""Rows that were made once are not made again, in this process or the next, and are the same rows."""

from __future__ import annotations

import json
import logging
import random
from collections.abc import Iterator
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from groupwise.domain.language.source import base as module
from groupwise.domain.language.source.base import ReasoningGym, Row, distinct, kept_rows


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A cache of the test's own, for which every row is worth keeping, and an empty memory."""
    monkeypatch.setenv("GROUPWISE_CACHE", str(tmp_path))
    monkeypatch.setattr(module, "WORTH_SECONDS", -1.0)
    monkeypatch.setattr(module, "_in_memory", type(module._in_memory)())
    return tmp_path / "rows"


class Entries:
    """An endless list with repeats, which counts what was read of it."""

    def __init__(self, size: int) -> None:
        self.size, self.read = size, 0

    def __call__(self, start: int) -> Iterator[Row]:
        for place in count(start):
            self.read += 1
            yield {"prompt": str(random.Random(place).randrange(self.size))}


def identity(row: Row) -> str:
    return row["prompt"]


def forget(monkeypatch: pytest.MonkeyPatch) -> None:
    """Leaves what another process has: the files."""
    monkeypatch.setattr(module, "_in_memory", type(module._in_memory)())


@pytest.mark.parametrize("numbers", [[5, 12, 3], [12, 5], [40], [40, 60, None, 2]])
def test_rows_are_those_of_one_draw_whatever_was_asked_before(
    numbers: list[int | None], monkeypatch: pytest.MonkeyPatch
) -> None:
    entries = Entries(50)
    for num in numbers:
        assert kept_rows({"list": 1}, entries, identity, num, what="") == distinct(Entries(50)(0), identity, num)
        forget(monkeypatch)


def test_nothing_is_made_twice(monkeypatch: pytest.MonkeyPatch) -> None:
    entries, whole = Entries(1000), Entries(1000)
    for num in (10, 30, 20):
        kept_rows({"list": 1}, entries, identity, num, what="")
        forget(monkeypatch)
    distinct(whole(0), identity, 30)
    assert entries.read == whole.read
    kept_rows({"list": 2}, entries, identity, 10, what="")
    assert entries.read > whole.read, "other inputs are another list"


def test_an_exhausted_list_is_not_searched_again(monkeypatch: pytest.MonkeyPatch) -> None:
    entries = Entries(5)
    assert len(kept_rows({"list": 1}, entries, identity, 9, what="")) == 5
    read = entries.read
    forget(monkeypatch)
    assert len(kept_rows({"list": 1}, entries, identity, 9, what="")) == 5
    assert entries.read == read


@pytest.mark.parametrize("damage", [lambda text: text[:-9], lambda text: "", lambda text: "[]\n", lambda text: "\0"])
def test_a_damaged_file_is_made_again(
    damage: Any, cache: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    rows = kept_rows({"list": 1}, Entries(50), identity, 9, what="")
    (file,) = cache.iterdir()
    file.write_text(damage(file.read_text()))
    forget(monkeypatch)
    with caplog.at_level(logging.WARNING, "groupwise"):
        assert kept_rows({"list": 1}, Entries(50), identity, 9, what="") == rows
    assert "its rows are made again" in caplog.text
    assert len(file.read_text().splitlines()) == 10


def test_a_cache_that_cannot_be_written_is_said(cache: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    cache.write_text("a file where the folder should be")
    with caplog.at_level(logging.WARNING, "groupwise"):
        assert len(kept_rows({"list": 1}, Entries(50), identity, 9, what="")) == 9
    assert "are not kept" in caplog.text


def test_what_a_caller_does_to_a_row_stays_with_him() -> None:
    first = kept_rows({"list": 1}, Entries(50), identity, 2, what="")
    first[0]["prompt"] = "changed"
    assert kept_rows({"list": 1}, Entries(50), identity, 2, what="")[0]["prompt"] != "changed"


@pytest.mark.parametrize("task", ["countdown", "knights_knaves", "basic_arithmetic", "spell_backward"])
def test_kept_puzzles_are_those_that_the_library_makes(task: str, cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source = ReasoningGym(task=task)
    fresh = distinct(source._entries(3, 0), source.identity, 12)
    assert source.rows(5, 3) == fresh[:5]
    forget(monkeypatch)
    assert source.rows(12, 3) == fresh
    forget(monkeypatch)
    monkeypatch.setattr(ReasoningGym, "_entries", lambda *_: pytest.fail("the rows are there"))
    again = source.rows(12, 3)
    assert again == fresh
    assert json.dumps(again) == json.dumps(fresh), "the order of the columns too"
