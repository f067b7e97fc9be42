"""Alone, or rank 0."""

from __future__ import annotations

import pytest

from groupwise.processes import is_first_process


@pytest.mark.parametrize(("rank", "first"), [(None, True), ("0", True), ("1", False)])
def test_the_first_process_is_alone_or_rank_zero(monkeypatch: pytest.MonkeyPatch, rank: str | None, first: bool) -> None:
    monkeypatch.delenv("RANK", raising=False)
    if rank is not None:
        monkeypatch.setenv("RANK", rank)
    assert is_first_process() is first
