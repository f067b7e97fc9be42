from __future__ import annotations

from pathlib import Path

from groupwise.runs.folder import natural


def test_numbers_count_by_size_and_other_digits_are_letters() -> None:
    assert sorted(map(Path, ["b2", "b²", "b10", "a"]), key=natural) == [Path("a"), Path("b2"), Path("b10"), Path("b²")]
