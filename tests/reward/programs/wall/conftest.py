"""Every wall that this machine allows, one without a control group, and one whose Landlock is as old as Linux 6.7's."""

from __future__ import annotations

from dataclasses import replace
from functools import cache

import pytest

from groupwise.reward.wall import cgroup, machine_wall
from groupwise.reward.wall.machine_wall import Wall

MECHANISMS = ("bubblewrap", "counted-bubblewrap", "landlock", "old-landlock")
_OLD = 4


@cache
def wall(mechanism: str) -> Wall | None:
    """The wall of a mechanism, or None where this machine does not allow it."""
    for candidate in machine_wall.candidates():
        if mechanism.endswith(candidate.kind) and not machine_wall.why_refused(candidate):
            old = mechanism == "old-landlock"
            return replace(candidate, landlock=min(_OLD, candidate.landlock)) if old else candidate
    return None


@pytest.fixture(params=MECHANISMS)
def mechanism(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    chosen = wall(request.param)
    if chosen is None:
        pytest.skip(f"this machine does not allow {request.param}")
    monkeypatch.setattr(machine_wall, "best_wall", lambda: chosen)
    if request.param == "counted-bubblewrap":
        monkeypatch.setattr(cgroup, "make", lambda *given: None)
    return request.param
