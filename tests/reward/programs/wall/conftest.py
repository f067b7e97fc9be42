"""Every road that this machine allows, and one whose Landlock is as old as that of Linux 6.7."""

from __future__ import annotations

from functools import cache

import pytest

from groupwise.reward.programs.wall import machine_wall
from groupwise.reward.programs.wall.machine_wall import Wall

ROADS = ("namespaces", "landlock", "old-landlock")
_OLD = 4


@cache
def wall(road: str) -> Wall | None:
    """The wall of a road, or None where this machine does not allow it."""
    for candidate in machine_wall._candidates():
        if road.endswith(candidate.road) and not machine_wall.tried(candidate):
            if road != "old-landlock":
                return candidate
            return Wall(candidate.road, min(_OLD, candidate.landlock), candidate.filtered, candidate.user)
    return None


@pytest.fixture(params=ROADS)
def road(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    chosen = wall(request.param)
    if chosen is None:
        pytest.skip(f"this machine does not allow {request.param}")
    monkeypatch.setattr(machine_wall, "standing", lambda: chosen)
    return request.param
