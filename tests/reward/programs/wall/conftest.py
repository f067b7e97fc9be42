"""Every wall that this machine allows, one without a control group, and one whose Landlock is as old as Linux 6.7's."""

from __future__ import annotations

from dataclasses import replace
from functools import cache

import pytest

from groupwise.reward.wall import cgroup, machine_wall
from groupwise.reward.wall.machine_wall import Wall

ROADS = ("bubblewrap", "counted-bubblewrap", "landlock", "old-landlock")
_OLD = 4


@cache
def wall(road: str) -> Wall | None:
    """The wall of a road, or None where this machine does not allow it."""
    for candidate in machine_wall.candidates():
        if road.endswith(candidate.kind) and not machine_wall.tried(candidate):
            return replace(candidate, landlock=min(_OLD, candidate.landlock)) if road == "old-landlock" else candidate
    return None


@pytest.fixture(params=ROADS)
def road(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    chosen = wall(request.param)
    if chosen is None:
        pytest.skip(f"this machine does not allow {request.param}")
    monkeypatch.setattr(machine_wall, "standing", lambda: chosen)
    if request.param == "counted-bubblewrap":
        monkeypatch.setattr(cgroup, "make", lambda *given: None)
    return request.param
