"""The guide *Your own domain* is true: its files are the example that ships, its commands run in an empty folder, and
the package that they install is found by its entry point.
"""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
from tests.docs.test_pages import ROOT, files

PAGE = ROOT / "docs" / "guide" / "write_your_own_domain.md"
EXAMPLE = ROOT / "examples" / "control"
PARTS = re.findall(
    r'^```(?:bash\n(.*?)|\w+ title="([^"]+)"\n(.*?))^```', PAGE.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL
)
"""The commands and the files of the page, in order."""


def test_the_files_of_the_page_are_the_example() -> None:
    assert files(PAGE) == {path.name: path.read_text(encoding="utf-8") for path in EXAMPLE.iterdir() if path.is_file()}


@pytest.fixture(scope="module")
def shell(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """An environment in which `pip install` writes into a folder of its own, reaches no index, and needs none."""
    place = tmp_path_factory.mktemp("shell")
    for name in ("groupwise", "pip", "python"):
        module = "" if name == "python" else f"-m {name} "
        (place / name).write_text(f'#!/bin/sh\nexec {shlex.quote(sys.executable)} {module}"$@"\n')
        (place / name).chmod(0o755)
    settings = {"TARGET": str(place / "site"), "NO_DEPS": "1", "NO_INDEX": "1", "QUIET": "1"}
    return {
        **os.environ,
        **{f"PIP_{name}": value for name, value in settings.items()},
        # What the switch means is turned round where it comes from the environment.
        "PIP_NO_BUILD_ISOLATION": "0",
        "PATH": os.pathsep.join([str(place), os.environ["PATH"]]),
        "PYTHONPATH": os.pathsep.join([str(place / "site"), os.environ.get("PYTHONPATH", "")]),
        "OMP_NUM_THREADS": "1",
    }


def run(line: str, folder: Path, shell: dict[str, str]) -> subprocess.CompletedProcess[str]:
    return subprocess.run(line, shell=True, cwd=folder, env=shell, capture_output=True, text=True, timeout=900)


@pytest.fixture(scope="module")
def package(tmp_path_factory: pytest.TempPathFactory, shell: dict[str, str]) -> Path:
    """The folder of the package after every command of the page up to its training, which other tests shorten."""
    folder = tmp_path_factory.mktemp("empty")
    for commands, name, text in PARTS:
        if name:
            (folder / name).write_text(text, encoding="utf-8")
        for line in commands.splitlines():
            if line.startswith("groupwise"):
                return folder
            done = run(line, folder, shell)
            assert done.returncode == 0, (line, done.stdout, done.stderr)
            if line.startswith("cd "):
                folder = folder / line.removeprefix("cd ")
    raise AssertionError("the page runs no groupwise")


@pytest.mark.nightly
def test_every_command_runs_in_an_empty_folder(package: Path, shell: dict[str, str]) -> None:
    printed, begun = {}, False
    for commands, name, text in PARTS:
        if name:
            (package / name).write_text(text, encoding="utf-8")
        for line in commands.splitlines():
            begun = begun or line.startswith("groupwise")
            if begun:
                done = run(line, package, shell)
                assert done.returncode == 0, (line, done.stdout, done.stderr)
                printed[line.removesuffix(" --run-code")] = done.stdout
    assert "laws        all kept" in printed["groupwise check control.toml"]
    assert "uniformly random actions" in printed["groupwise train control.toml --out runs/a"]
    summary = json.loads((package / "runs/a/summary.json").read_text())
    assert summary["before"] < -1000
    assert summary["after"] > -400
    assert "after 40 decisions" in printed["groupwise sample runs/a"]
    assert (
        "Load it: groupwise evaluate swing-up --experiment runs/a" in printed["groupwise export runs/a --out swing-up"]
    )
    exported, trained = (
        re.findall(r"return +(-[\d.]+)", printed[f"groupwise evaluate {place}"])
        for place in ("swing-up --experiment runs/a", "runs/a")
    )
    assert trained
    assert exported == trained
    assert "7 passed" in printed["python -m pytest -q test_control.py"]
    estimated = run("groupwise estimate control.toml", package, shell)
    assert "whole step" in estimated.stdout, estimated.stderr


@pytest.mark.nightly
def test_without_the_package_its_kind_is_unknown_in_one_line(package: Path, shell: dict[str, str]) -> None:
    done = run("groupwise check control/control.toml", package.parent, {**shell, "PYTHONPATH": ""})
    assert done.returncode == 2
    assert 'domain.kind = "control": unknown kind' in done.stderr.replace("\n", " ")
