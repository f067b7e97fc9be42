"""Which files a result was computed by."""

from __future__ import annotations

from pathlib import Path

import pytest

from groupwise.checkpoint import imported_code, named_code


def test_a_domain_is_its_own_code_and_what_it_imports() -> None:
    found = imported_code("groupwise.domain.language.domain", without=["objective", "reward"])
    assert {
        "domain/language/domain.py",
        "domain/language/supervised.py",
        "causal_lm/scoring.py",
        "causal_lm/head.py",
        "domain/protocol.py",
    } <= set(found)
    assert not [
        name
        for name in found
        if name.startswith(("objective/", "reward/", "domain/diffusion", "domain/restoration", "train/"))
    ]
    with_rewards = imported_code("groupwise.domain.language.domain", without=["objective"])
    assert "reward/texts/exact_answer.py" in with_rewards
    assert set(found) < set(with_rewards)


def test_imports_inside_functions_and_of_submodules_count() -> None:
    # `open` of the configuration imports the domain when it is called.
    assert "domain/restoration/domain.py" in imported_code("groupwise.domain.restoration.config")
    # `from groupwise.domain.language import evaluate` is a module, not a name.
    assert "domain/language/evaluate.py" in imported_code("groupwise.domain.language.domain")


@pytest.mark.parametrize("module", ["torch", "groupwise", "groupwise.nowhere", "tests.training.toy"])
def test_what_is_no_module_of_the_package_has_no_files(module: str) -> None:
    assert imported_code(module) == []


def test_a_users_module_is_found_by_what_settings_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # As for a console command, which does not look into the working directory.
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mine_for_a_test.py").write_text("def reward(): ...\n")
    settings = {
        "rewards": {"a": {"path": "mine_for_a_test:reward"}, "b": {"path": "nowhere.at.all:reward"}},
        "text": "ratio: 3",
        "list": ["x:y z"],
    }
    before = named_code(settings)
    assert list(before) == ["mine_for_a_test"]
    (tmp_path / "mine_for_a_test.py").write_text("def reward(): return 1\n")
    assert named_code(settings) != before
