"""Rows that were made once are not made again, in this process or the next, and are the same rows."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator
from itertools import count
from pathlib import Path

import pytest

from groupwise.domain.language.source import base as module
from groupwise.domain.language.source.base import ReasoningGym, Row, distinct, kept_rows


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A cache of the test's own, for which every row is worth keeping."""
    monkeypatch.setenv("GROUPWISE_CACHE", str(tmp_path))
    monkeypatch.setattr(module, "WORTH_SECONDS", -1.0)
    return tmp_path / "rows"


def entries(size: int = 50) -> Iterator[Row]:
    """An endless list with repeats."""
    return ({"prompt": str(place * place % size)} for place in count())


def made(name: str, num: int | None, drawn: Iterator[Row]) -> list[Row]:
    return kept_rows({"list": name}, drawn, lambda row: row["prompt"], num, what="")


@pytest.mark.parametrize("num", [5, None])
def test_rows_are_those_of_one_draw_and_are_made_once(num: int | None) -> None:
    expected = distinct(entries(), lambda row: row["prompt"], num)
    assert made("a", num, entries()) == expected
    assert made("a", num, iter(())) == expected
    assert made("b", num, iter(())) == [], "other inputs are another list"


def test_a_damaged_file_is_made_again(cache: Path) -> None:
    rows = made("a", 9, entries())
    (file,) = cache.iterdir()
    for damaged in (file.read_text()[:-9], "", "\0"):
        file.write_text(damaged)
        assert made("a", 9, entries()) == rows
        assert json.loads(file.read_text()) == rows


def test_a_cache_that_cannot_be_written_is_said(cache: Path, caplog: pytest.LogCaptureFixture) -> None:
    cache.write_text("a file where the folder should be")
    with caplog.at_level(logging.WARNING, "groupwise"):
        assert len(made("a", 9, entries())) == 9
    assert "are not kept" in caplog.text


@pytest.mark.parametrize("task", ["countdown", "knights_knaves", "basic_arithmetic", "spell_backward"])
def test_kept_puzzles_are_those_that_the_library_makes(task: str, monkeypatch: pytest.MonkeyPatch) -> None:
    source = ReasoningGym(task=task)
    fresh = distinct(source._entries(3), source.identity, 12)
    assert source.rows(12, 3) == fresh
    monkeypatch.setattr(ReasoningGym, "_entries", lambda *_: iter(()))
    assert json.dumps(source.rows(12, 3)) == json.dumps(fresh), "the order of the columns too"
