"""`check_reward` on faults that authors make, each named; what is sound passes."""

from __future__ import annotations

import ctypes
import os
import random
import re
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from groupwise.reward import ExactAnswer
from groupwise.testing import BrokenLaws, check_reward
from groupwise.testing.reward import MARK, SHORT

COMPLETIONS = ["4", "so it is 5", "no number"]
COLUMNS = {"answer": ["4", "5", "6"], "hint": [["a"], ["b"], ["c"]]}


def digits(completion: str) -> list[str]:
    return re.findall("[0-9]", completion)


def right(completions: list[str], answer: list[str], **columns: Any) -> list[float]:
    return [float(value in digits(text)) for text, value in zip(completions, answer)]


def drawn(completions: list[str]) -> list[float]:
    return [random.random() for _ in completions]


def by_place(completions: list[str]) -> list[float]:
    return [float(place) for place in range(len(completions))]


def ranked(completions: list[str]) -> list[float]:
    return [float(len(text) == max(map(len, completions))) for text in completions]


def undeclared(completions: list[str], **columns: Any) -> list[float]:
    return [float(text == value) for text, value in zip(completions, columns["answer"])]


def short(completions: list[str]) -> list[float]:
    return [0.0, 1.0]


def endless(completions: list[str]) -> list[float]:
    return [float("nan") for _ in completions]


def evaluated(completions: list[str]) -> list[float]:
    def value(text: str) -> float:
        try:
            return float(eval(text) == 4) if "__import__" in text else 0.0
        except Exception:
            return 0.0

    return [value(text) for text in completions]


def parsed(completions: list[str]) -> list[float]:
    return [float(text.split()[-1].isdigit()) for text in completions]


def backtracking(completions: list[str]) -> list[float]:
    return [float(bool(re.match("(a+)+$", text))) for text in completions]


def blocking(completions: list[str]) -> list[float]:
    """Holds the interpreter as a regular expression does, and computes nothing."""
    if any("\x00" in text for text in completions):
        ctypes.PyDLL(None).sleep(3600)
    return [0.0] * len(completions)


def sleeping(completions: list[str]) -> list[float]:
    if any("\x00" in text for text in completions):
        time.sleep(3600)
    return [0.0] * len(completions)


def ending(completions: list[str]) -> list[float]:
    if "" in completions:
        os._exit(1)
    return [0.0] * len(completions)


def changing(completions: list[str], answer: list[str], hint: list[list[str]]) -> list[float]:
    # The lists are the reward's own, and what stands in them is not.
    hint[0].append("d")
    return right(completions, answer)


def silent(completions: list[str]) -> list[None]:
    return [None] * len(completions)


@pytest.mark.parametrize(
    ("reward", "sentence"),
    [
        (drawn, "repeat: the same batch gave member 0"),
        (by_place, "order: in a batch turned round member 0 got 2.0 and not 0.0"),
        (ranked, "neighbours: without its neighbours member 0 got 1.0 and not 0.0"),
        (undeclared, "columns: with those alone that it says it needs (none) it fails: "),
        (short, "values: reward 'reward' returned 2 values for 3 members"),
        (endless, "values: reward 'reward' gave nan for member 0"),
        (evaluated, "hostile: it ran code that stood in a completion"),
        (parsed, "hostile: on the text 'nothing': "),
        pytest.param(backtracking, "hostile: the text 'nested repetition': it takes more than", marks=pytest.mark.slow),
        (blocking, "hostile: the text 'NUL': it takes more than"),
        (sleeping, "hostile: on the text 'NUL': timeout"),
        (ending, "its process ended; a reward must not end or kill"),
        (changing, "inputs: it changed hint"),
        (silent, "values: it gave no member a number"),
        (ExactAnswer(column="solution"), "columns: it needs 'solution', which is not among the columns"),
    ],
)
def test_a_planted_fault_is_named(
    reward: Callable[..., Any], sentence: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("groupwise.testing.reward.PATIENCE", 0.5)
    # Rewards that never end are waited for no longer than it takes a busy machine to score one other text.
    never_ends = {backtracking: "nested repetition", blocking: "NUL", sleeping: "NUL"}.get(reward)
    texts, seconds = ({never_ends: SHORT[never_ends]}, 1.0) if never_ends else (SHORT, 60.0)
    with pytest.raises(BrokenLaws) as caught:
        check_reward(reward, COMPLETIONS, columns=COLUMNS, hostile=texts, seconds=seconds)
    assert any(sentence in broken for broken in caught.value.broken), caught.value.broken
    assert "docs/guide/rewards.md" in str(caught.value)
    assert not (tmp_path / MARK).exists()


def test_sound_rewards_pass() -> None:
    check_reward(right, COMPLETIONS, columns=COLUMNS)
    check_reward(ranked, COMPLETIONS, compares=True)
    check_reward(ExactAnswer(), COMPLETIONS, columns=COLUMNS)
    check_reward(lambda completions: [1.0 if digits(text) else None for text in completions], COMPLETIONS)


def test_chats_and_maps_are_members_too() -> None:
    chats = [[{"role": "assistant", "content": text}] for text in COMPLETIONS]
    check_reward(ExactAnswer(), chats, columns=COLUMNS)
    images = [np.full((4, 4), level, dtype=np.uint8) for level in (0, 128)]
    check_reward(lambda completions: [image / 255 for image in completions], images)
    with pytest.raises(BrokenLaws, match="neighbours"):
        check_reward(lambda completions: [image - np.mean(completions) for image in completions], images)


def test_the_completions_and_columns_of_the_check_are_checked() -> None:
    with pytest.raises(ValueError, match="one entry of all others a completion"):
        check_reward(right, COMPLETIONS, columns={"answer": ["4"]})
    with pytest.raises(ValueError, match="give two or more"):
        check_reward(right, ["4"], columns={"answer": ["4"]})
