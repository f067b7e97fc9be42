"""`version`: what is installed."""

from __future__ import annotations

from importlib.metadata import version


def test_versions_are_printed(groupwise):
    out = groupwise("version").out
    assert f"groupwise {version('groupwise')}\n" in out
    assert f"torch {version('torch')}\n" in out


def test_the_option_prints_the_version_alone(groupwise):
    from importlib.metadata import version

    ended = groupwise("--version")
    assert (ended.status, ended.out, ended.err) == (0, f"groupwise {version('groupwise')}\n", "")
