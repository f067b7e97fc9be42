"""A user's functions after every step are refused before training where they cannot be called."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from groupwise.config import ConfigError, ImportPath
from groupwise.training.run.loop import load_callbacks

MODULE = """
def nothing(): ...
def three(step, metrics, extra): ...
def named(step, metrics, extra=0): ...
def anything(*arguments): ...
"""


@pytest.fixture(autouse=True)
def module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "my_callbacks.py").write_text(MODULE)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delitem(sys.modules, "my_callbacks", raising=False)


@pytest.mark.parametrize(
    ("name", "signature"), [("nothing", r"\(\): too many"), ("three", r"\(step, metrics, extra\): missing a required")]
)
def test_one_that_takes_other_arguments_is_refused(name: str, signature: str) -> None:
    with pytest.raises(ConfigError, match=rf"my_callbacks:{name}\" is called as f\(step, metrics\), .*{signature}"):
        load_callbacks([ImportPath(f"my_callbacks:{name}")])


def test_one_that_takes_a_step_and_metrics_is_called_with_them() -> None:
    functions = load_callbacks([ImportPath(f"my_callbacks:{name}") for name in ("named", "anything")])
    assert [function(1, {}) for function in functions] == [None, None]
