"""What a real bash completes after `groupwise --install-completion`."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

COMMAND = Path(sys.executable).with_name("groupwise")
SCRIPT = """
source <("$1" --show-completion bash)
COMP_WORDS=("${@:2}"); COMP_CWORD=$(($# - 2)); COMP_LINE="${*:2}"; COMP_POINT=${#COMP_LINE}
_groupwise_completion "$1"
printf '%s\\n' "${COMPREPLY[@]}"
"""


WORDS = [
    (["tr"], ["train"]),
    (["train", "language_k"], ["language_knights"]),
    (["train", "language", "train.gro"], ["train.group_size="]),
    # bash makes a word of the sign, and replaces what follows it.
    (["train", "language", "method", "=", "dual"], ["dual_clip"]),
    (["methods", "dapo+ice"], ["dapo+icepop"]),
    (["compare", "language", "--var"], ["--vary"]),
]


def completed_by_bash(words: list[str]) -> list[str]:
    environment = {**os.environ, "_TYPER_COMPLETE_TEST_DISABLE_SHELL_DETECTION": "1"}
    ended = subprocess.run(
        ["bash", "-c", SCRIPT, "bash", str(COMMAND), "groupwise", *words],
        capture_output=True,
        text=True,
        env=environment,
        timeout=300,
        check=True,
    )
    return ended.stdout.split()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("words", "completed"), [WORDS[0], *(pytest.param(*each, marks=pytest.mark.slow) for each in WORDS[1:])]
)
def test_bash_completes_words(words: list[str], completed: list[str]) -> None:
    assert completed_by_bash(words) == completed


@pytest.mark.parametrize(("words", "completed"), WORDS)
def test_the_command_completes_words(
    groupwise, words: list[str], completed: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """As bash calls it, with its words in the environment."""
    # A program that Python started as a module is called otherwise, as pytest was.
    monkeypatch.setattr(sys.modules["__main__"], "__package__", None, raising=False)
    monkeypatch.setenv("_GROUPWISE_COMPLETE", "complete_bash")
    monkeypatch.setenv("COMP_WORDS", "\n".join(["groupwise", *words]))
    monkeypatch.setenv("COMP_CWORD", str(len(words)))
    assert groupwise().out.split() == completed
