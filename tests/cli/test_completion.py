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


@pytest.mark.parametrize(
    ("words", "completed"),
    [
        (["tr"], ["train"]),
        (["train", "language_k"], ["language_knights"]),
        (["train", "language", "train.gro"], ["train.group_size="]),
        # bash makes a word of the sign, and replaces what follows it.
        (["train", "language", "method", "=", "dual"], ["dual_clip"]),
        (["methods", "dapo+ice"], ["dapo+icepop"]),
        (["compare", "language", "--var"], ["--vary"]),
    ],
)
def test_words_are_completed(words: list[str], completed: list[str]):
    environment = {**os.environ, "_TYPER_COMPLETE_TEST_DISABLE_SHELL_DETECTION": "1"}
    ended = subprocess.run(
        ["bash", "-c", SCRIPT, "bash", str(COMMAND), "groupwise", *words],
        capture_output=True,
        text=True,
        env=environment,
        timeout=120,
        check=True,
    )
    assert ended.stdout.split() == completed
