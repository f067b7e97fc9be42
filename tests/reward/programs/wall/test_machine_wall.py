"""The wall that a machine allows is found by trying, and what it lacks is named."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from tests.reward.programs.wall.conftest import wall

from groupwise.reward.wall.machine_wall import Wall
from groupwise.reward.wall.readable_paths import readable_paths

_SAYS = (
    "from groupwise.reward.wall import machine_wall; wall = machine_wall.best_wall();"
    " print(wall.kind, wall.is_safe, '|', wall.missing)"
)
# The user namespaces that one allows in itself are its own to forbid.
_FORBID = 'echo 0 > /proc/sys/user/max_user_namespaces && exec "$@"'


@pytest.mark.skipif(
    wall("bubblewrap") is None or wall("landlock") is None, reason="this machine does not allow both walls"
)
def test_where_namespaces_are_refused_landlock_is_taken_and_said(tmp_path: Path) -> None:
    command = ["unshare", "--user", "--map-root-user", "sh", "-c", _FORBID, "sh", sys.executable, "-c", _SAYS]
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=600, check=True, env=os.environ | {"TMPDIR": str(tmp_path)}
    )
    assert list(tmp_path.iterdir()) == []
    kind, _, remark = done.stdout.partition("|")
    assert kind.split() == ["landlock", "True"]
    assert "namespaces are refused (bwrap: " in remark


def test_what_is_missing_is_named() -> None:
    assert Wall("bubblewrap").missing == ""
    assert "may signal no process" in Wall("landlock", landlock=4).missing
    assert "may signal no process" not in Wall("landlock", landlock=6).missing
    nothing = Wall("none", filtered=False, refused="bwrap: Operation not permitted")
    assert not nothing.is_safe
    assert not nothing.denies_network
    assert "refused (bwrap: Operation not permitted): programs may read what this user may" in nothing.missing


def test_a_program_reads_python_and_the_system_and_not_what_lies_around_them() -> None:
    paths, links = readable_paths(False)
    assert all(os.path.realpath(path) == path for path in paths)
    assert not any(outer != inner and inner.startswith(outer + "/") for outer in paths for inner in paths)
    assert {"/", "/etc", "/home", "/root", "/tmp", str(Path.cwd()), str(Path.home())}.isdisjoint(paths)
    assert all(os.readlink(path) == target for path, target in links)
