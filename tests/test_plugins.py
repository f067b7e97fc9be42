"""Names, verbs, kinds and experiments that packages bring by entry points, and one line where a package is absent."""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]


@pytest.fixture(scope="module")
def core(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The core alone, as it lies in a folder without the packages beside it."""
    folder = tmp_path_factory.mktemp("core")
    shutil.copytree(ROOT / "src" / "groupwise", folder / "groupwise", ignore=shutil.ignore_patterns("__pycache__"))
    return folder


COMMANDS = """
import sys
sys.path[:] = [{core!r}, *(path for path in sys.path if path != {src!r})]
from groupwise.cli import main
for command in {commands!r}:
    sys.argv = ["groupwise", *command]
    try:
        main()
    except SystemExit as end:
        print("ended with", end.code, file=sys.stderr)
"""


def alone(core: Path, *commands: Sequence[str]) -> subprocess.CompletedProcess[str]:
    """Runs commands where the packages beside the core cannot be found, though their entry points are installed."""
    code = COMMANDS.format(core=str(core), src=str(ROOT / "src"), commands=commands)
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=core, check=False)


@pytest.mark.slow
def test_an_absent_package_is_named_in_one_line_and_the_core_lists_its_own_experiments(core: Path) -> None:
    tinker = "domain.model={kind='tinker',address='http://127.0.0.1:1',base_model='x'}"
    absent = {
        "groupwise_look": ["doctor"],
        "groupwise_images": ["train", "language", "domain.kind=diffusion"],
        "groupwise_tinker": ["train", "language", tinker],
        "groupwise_vllm": ["train", "language", "domain.engine.kind=vllm"],
    }
    ended = alone(core, *absent.values(), ["experiments", "--all"])
    assert ended.stderr.count("ended with 2\n") == len(absent)
    for package in absent:
        (line,) = [line for line in ended.stderr.splitlines() if package in line]
        assert "not installed here" in line
    assert "Traceback" not in ended.stderr
    assert "language_countdown" in ended.stdout
    assert "restoration" not in ended.stdout
    assert "selection" not in ended.stdout


@pytest.mark.nightly
def test_the_core_trains_alone(core: Path) -> None:
    small = ["stages.warm_up.num_steps=1", "stages.grpo.num_steps=1", "controls=null"]
    ended = alone(core, ["train", "language", "--out", "run", *small])
    assert "ended with 0" in ended.stderr, ended.stderr
    assert "Run folder" in ended.stdout


WITH_GUESTS = [
    *("causal_lm/engine", "config/test_import_path.py", "reward/test_config.py", "reward/test_hostile.py"),
    *("training/run/test_record_retention.py", "training/step/test_memory.py", "training/step/test_pass_sizes.py"),
    *("training/test_distributed.py", "training/distributed_worker.py", "training/test_long_run.py"),
    *("training/test_sharded_presets.py", "training/test_sharding.py"),
]
"""Tests in the rooms of the core that use a package beside it."""


@pytest.mark.nightly
def test_the_tests_of_the_core_pass_alone(tmp_path: Path) -> None:
    """The tests of numbers and files, in a checkout without the packages beside the core and their tests."""
    shutil.copytree(ROOT / "src" / "groupwise", tmp_path / "src" / "groupwise")
    shutil.copytree(ROOT / "tests", tmp_path / "tests", ignore=shutil.ignore_patterns("images", "selection", "look"))
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    rooms = ["objective", "causal_lm", "checkpoint", "config", "learner", "reference", "reward", "schedule", "training"]
    hidden = f"import sys; sys.path[:] = ['src', *(p for p in sys.path if p != {str(ROOT / 'src')!r})]"
    paths = [f"tests/{room}" for room in rooms] + [f"--ignore=tests/{path}" for path in WITH_GUESTS]
    run = f"{hidden}; import pytest; sys.exit(pytest.main(['-q', *{paths!r}]))"
    ended = subprocess.run([sys.executable, "-c", run], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended.stdout[-3000:]


def test_a_name_that_nobody_brings_is_an_attribute_error() -> None:
    import groupwise

    with pytest.raises(AttributeError, match="no attribute 'Selecter'"):
        groupwise.Selecter  # noqa: B018
    assert groupwise.Selector.__module__ == "groupwise_selection.selector"
