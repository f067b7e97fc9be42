"""The shape of a completion."""

from __future__ import annotations

import pytest

from groupwise.config import ConfigError, validate
from groupwise.reward import Format


@pytest.mark.parametrize(
    ("text", "fits"),
    [
        ("<think>a\nb</think>\n<answer>c</answer>\n", True),
        ("<think></think><answer></answer>", True),
        ("so <think>a</think><answer>b</answer>", False),
        ("<think>a</think> and <answer>b</answer>", False),
        ("<think>a</think><answer>b</answer> done", False),
        ("<think>a</think><answer>b</answer><answer>c</answer>", False),
        ("<answer>b</answer><think>a</think>", False),
        ("<think>a<answer>b</answer></think>", False),
        ("<think>a</think>", False),
        ("", False),
    ],
)
def test_tags_once_each_in_order(text: str, fits: bool) -> None:
    assert Format(correct=1.0, wrong=-1.0)([""], [text]) == [1.0 if fits else -1.0]


def test_what_the_prompt_wrote_counts() -> None:
    assert Format(tags=("think",), prefilled="<think>")([""] * 2, ["a</think>", "<think>a</think>"]) == [1.0, 0.0]


def test_pattern_matches_the_whole_completion() -> None:
    assert Format(pattern=r"a.b")([""] * 3, ["a\nb", "aab", "a b!"]) == [1.0, 1.0, 0.0]


@pytest.mark.parametrize(
    "tree", [{"tags": ["a"], "pattern": "b"}, {"tags": []}, {"tags": ["a", "a"]}, {"pattern": "["}]
)
def test_contradictions_are_refused(tree: dict) -> None:
    with pytest.raises(ConfigError):
        validate(Format, {"kind": "format", **tree})
