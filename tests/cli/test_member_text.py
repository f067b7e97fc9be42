"""A member in words; a domain that describes nothing itself still shows what it chose."""

from __future__ import annotations

from pathlib import Path

import pytest

REACH = Path(__file__).parents[1] / "domain/callable"


@pytest.fixture
def trained(groupwise, tmp_path: Path) -> Path:
    """A run of a domain outside the package, which writes no `describe` and no `asked`."""
    for name in ("reach.py", "reach.toml"):
        (tmp_path / name).write_text((REACH / name).read_text())
    ended = groupwise("train", "reach.toml", "--out", "run", "train.num_steps=1")
    assert ended.status == 0, ended.err
    return tmp_path


@pytest.mark.slow
def test_what_a_policy_chose_is_shown_without_a_method_of_the_authors(groupwise, trained: Path) -> None:
    shown = groupwise("sample", "run", "--run-code").out
    assert "actions [" in shown
    assert "{" not in shown
    checked = groupwise("check", "reach.toml").out
    assert "end [" in checked
    # The members of a group share their goal, which tells none from another.
    assert "goal [" not in checked


def test_a_training_prompt_is_asked_by_its_key_and_a_text_that_makes_none_is_refused(groupwise, trained: Path) -> None:
    key = groupwise("sample", "run", "--run-code").out.splitlines()[0]
    assert groupwise("sample", "run", "--run-code", "--prompt", key).out.splitlines()[0] == key
    refused = groupwise("sample", "run", "--run-code", "--prompt", "hello")
    assert refused.status == 2
    assert "--prompt 'hello': a prompt of Reach is no text alone" in refused.err
    assert repr(key) in refused.err


def test_a_policy_without_conversations_says_so_before_the_first_line(groupwise, trained: Path) -> None:
    refused = groupwise("sample", "run", "--run-code", "--chat")
    assert refused.status == 2
    assert "--chat: this model holds no conversations" in refused.err
