"""The clock by which stages and controls are given equal time."""

from __future__ import annotations

from pathlib import Path

import pytest

from groupwise.training.run import loop


def test_time_without_a_record_of_waiting_is_wall_time(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(loop, "_SCHEDULER", tmp_path / "absent")
    monkeypatch.setattr(loop, "perf_counter", lambda: 12.5)
    assert loop.undelayed_seconds() == 12.5
    (tmp_path / "schedstat").write_text("7000000000 2500000000 3\n", encoding="ascii")
    monkeypatch.setattr(loop, "_SCHEDULER", tmp_path / "schedstat")
    assert loop.undelayed_seconds() == 10.0
    (tmp_path / "schedstat").write_text("no record\n", encoding="ascii")
    assert loop.undelayed_seconds() == 12.5
