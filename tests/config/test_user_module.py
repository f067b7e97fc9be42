from __future__ import annotations

import sys
from pathlib import Path

import pytest

from groupwise.config import ConfigError, ImportPath, may_run, raised_at, restrict_code, user_module


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    # As a console command has it: the working directory is not on the path.
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [entry for entry in sys.path if entry not in ("", str(tmp_path))])
    for name in ("lying_here", "lying_here_broken"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    return tmp_path


def test_a_module_in_the_working_directory_is_found_after_installed_ones(here: Path):
    (here / "lying_here.py").write_text("value = 3")
    (here / "math.py").write_text("sqrt = None")
    assert user_module(ImportPath("lying_here:name")).value == 3
    assert sys.path[-1] == str(here)
    assert callable(user_module(ImportPath("math:name")).sqrt)


def test_an_import_that_fails_inside_a_module_keeps_its_own_error(here: Path):
    (here / "lying_here_broken.py").write_text("import not_installed_anywhere")
    with pytest.raises(ModuleNotFoundError, match="not_installed_anywhere"):
        user_module(ImportPath("lying_here_broken:name"))
    with pytest.raises(ModuleNotFoundError, match="nowhere_at_all"):
        user_module(ImportPath("nowhere_at_all:name"))


def test_where_a_users_function_raised_is_said_from_the_working_directory(here: Path):
    (here / "raises_for_a_user.py").write_text("def broken():\n    raise KeyError('x')\n")
    with pytest.raises(KeyError) as caught:
        user_module(ImportPath("raises_for_a_user:name")).broken()
    assert raised_at(caught.value) == " (at raises_for_a_user.py:2 in broken)"


def test_within_the_block_nothing_else_is_imported(here: Path):
    (here / "lying_here.py").write_text("raise AssertionError('it ran')")
    with restrict_code([ImportPath("math:sqrt")]):
        assert user_module(ImportPath("math:sqrt")).sqrt(4) == 2
        with restrict_code(), pytest.raises(ConfigError, match="math:sqrt is code that was not asked for"):
            user_module(ImportPath("math:sqrt"))
        assert may_run(ImportPath("math:sqrt"))
        # Another function of the same module is other code.
        with pytest.raises(ConfigError, match="was not asked for"):
            user_module(ImportPath("math:cbrt"))
        with pytest.raises(ConfigError, match="was not asked for"):
            user_module(ImportPath("lying_here:f"))
    assert may_run(ImportPath("lying_here:f"))


def test_plain_text_is_no_code():
    with pytest.raises(TypeError, match="give the key that names code the type ImportPath"):
        user_module("math:sqrt")  # type: ignore[arg-type]
