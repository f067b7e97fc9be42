"""`version`: what is installed."""

from __future__ import annotations

from importlib.metadata import version


def test_versions_are_printed(groupwise):
    out = groupwise("version").out
    assert f"groupwise {version('groupwise')}\n" in out
    assert f"torch {version('torch')}\n" in out
