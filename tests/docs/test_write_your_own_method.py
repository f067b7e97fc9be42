"""The tutorial is true: its files stand in a folder of their own, its laws hold, its run trains, and its last section
registers it.
"""

from __future__ import annotations

import importlib
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest
from tests.docs.test_pages import ROOT, files
from tests.experiment.tiny import TINY

PAGE = ROOT / "docs" / "guide" / "write_your_own_method.md"
FILES = files(PAGE)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A working directory with the files of the page, and nothing else."""
    for name, text in FILES.items():
        (tmp_path / name).write_text(text, encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    yield tmp_path
    for name in FILES:
        sys.modules.pop(Path(name).stem, None)


def cases(module: ModuleType) -> list[tuple[str, tuple[object, ...]]]:
    """The tests of a module with their arguments."""
    found = []
    for name in [name for name in vars(module) if name.startswith("test_")]:
        marks = [mark for mark in getattr(getattr(module, name), "pytestmark", []) if mark.name == "parametrize"]
        found += [(name, (value,)) for mark in marks for value in mark.args[1]] or [(name, ())]
    return found


def test_the_files_of_the_page() -> None:
    assert set(FILES) == {"soft_clip.py", "test_soft_clip.py", "soft.toml"}


def test_the_docstring_example_of_the_region(folder: Path) -> None:
    import doctest

    found = doctest.testmod(importlib.import_module("soft_clip"))
    assert found.attempted
    assert not found.failed


def test_the_guides_own_tests_hold(folder: Path) -> None:
    module = importlib.import_module("test_soft_clip")
    assert len(cases(module)) == 6
    for name, arguments in cases(module):
        getattr(module, name)(*arguments)


def test_the_laws_notice_a_wrong_region(folder: Path) -> None:
    # The gate is differentiated on the wrong side, and reads its neighbour.
    right = FILES["soft_clip.py"]
    (folder / "soft_clip.py").write_text(
        right.replace("decisions.advantage * (ratio.detach() - 1) > 0", "ratio.detach().roll(1, 1) > 1")
    )
    module = importlib.import_module("test_soft_clip")
    with pytest.raises(AssertionError):
        module.test_the_laws()


def test_a_wrong_setting_is_refused_with_its_name(folder: Path) -> None:
    from groupwise.config import ConfigError
    from groupwise.objective import Objective

    with pytest.raises(ConfigError, match=r"settings.widht.*did you mean width"):
        Objective.preset(
            "bnpo", **{"trust.kind": "callable", "trust.path": "soft_clip:SoftClip", "trust.settings.widht": 0.25}
        )


def test_the_run_of_the_page(folder: Path) -> None:
    from groupwise.experiment import load_experiment
    from groupwise.experiment.runner import run
    from groupwise.track import read_metrics

    assert load_experiment("language", ["method=soft.toml"]).objective.trust.kind == "callable"
    # The same method on an experiment that a test can afford.
    reward = (
        '[domain.rewards.digits]\nkind = "callable"\npath = "tests.golden_runs.language:digits"\n\n[domain.sampling]'
    )
    tiny = TINY.replace("[trust]\nhigh = 0.3\n", "").replace("[domain.sampling]", reward)
    (folder / "tiny.toml").write_text(tiny, encoding="utf-8")
    experiment = load_experiment("tiny.toml", ["method=soft.toml", "train.updates_per_batch=2"])
    result = run(experiment, folder / "run", controls=False)
    slopes = [
        row["soft_clip/slope_mean"] for row in read_metrics(result.folder.metrics) if "soft_clip/slope_mean" in row
    ]
    assert len(slopes) == 2
    assert all(0 < slope <= 1 for slope in slopes)


@pytest.mark.nightly
def test_a_new_kind_is_covered_the_moment_it_is_in_the_union(tmp_path: Path) -> None:
    shutil.copytree(ROOT / "src", tmp_path / "src", ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copytree(ROOT / "tests", tmp_path / "tests", ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    slot = tmp_path / "src" / "groupwise" / "objective" / "trust"
    kind = '    kind: Literal["soft_clip"] = "soft_clip"\n    width'
    file = FILES["soft_clip.py"].replace("    width", kind, 1).replace("import ClassVar,", "import ClassVar, Literal,")
    (slot / "soft_clip.py").write_text(file, encoding="utf-8")
    union = (slot / "__init__.py").read_text(encoding="utf-8")
    union = union.replace("\n__all__", "from groupwise.objective.trust.soft_clip import SoftClip\n\n__all__")
    union = union.replace("    Unbounded\n    | Clip", "    SoftClip\n    | Unbounded\n    | Clip")
    (slot / "__init__.py").write_text(union, encoding="utf-8")

    def laws(*options: str) -> str:
        environment = os.environ | {"PYTHONPATH": str(tmp_path / "src")}
        command = [
            sys.executable,
            "-m",
            "pytest",
            "-q",
            "-p",
            "no:cacheprovider",
            "tests/objective/test_laws.py",
            *options,
        ]
        return subprocess.run(
            command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False
        ).stdout

    alone = laws("-k", "soft_clip or states", "-m", "not nightly")
    assert "state law 1 for the new region in REGIONS" in alone
    assert int(re.search(r"(\d+) passed", alone)[1]) >= 2  # laws 2 to 4, alone
    rules = tmp_path / "tests" / "objective" / "test_laws.py"
    rules.write_text(
        rules.read_text(encoding="utf-8").replace("REGIONS = {\n", 'REGIONS = {\n    "soft_clip": "ratio",\n'),
        encoding="utf-8",
    )
    stated = laws("-k", "soft_clip or states or law_1 or covering")
    assert "failed" not in stated, stated[-2000:]
    # A region that breaks a law is caught without a test of its own.
    (slot / "soft_clip.py").write_text(
        file.replace("ratio.detach() - 1) > 0", "ratio.detach().roll(1, 1) - 1) > 0"), encoding="utf-8"
    )
    assert "failed" in laws("-k", "soft_clip", "-m", "not nightly")
