from __future__ import annotations

import json
from pathlib import Path

import pytest

from groupwise.config import ConfigError
from groupwise_images.diffusion.source import PromptFile


def test_a_text_file_has_a_prompt_a_line_each_once(tmp_path: Path) -> None:
    (tmp_path / "p.txt").write_text("a cat\n\n  a dog \na cat\n", encoding="utf-8")
    assert [dict(row) for row in PromptFile(path=str(tmp_path / "p.txt")).read().prompts] == [
        {"prompt": "a cat"},
        {"prompt": "a dog"},
    ]


def test_json_lines_keep_their_columns(tmp_path: Path) -> None:
    rows = [{"caption": "two cubes", "count": 2}, {"caption": "one cube", "count": 1}]
    (tmp_path / "p.jsonl").write_text("\n".join(map(json.dumps, rows)))
    found = PromptFile(path=str(tmp_path / "p.jsonl"), prompt_column="caption").read().prompts
    assert [(row["prompt"], row["count"]) for row in found] == [("two cubes", 2), ("one cube", 1)]


def test_a_class_may_be_asked_for_without_words(tmp_path: Path) -> None:
    (tmp_path / "p.jsonl").write_text('{"label": 207}\n{"label": 3, "prompt": "tench"}')
    assert [row["prompt"] for row in PromptFile(path=str(tmp_path / "p.jsonl")).read().prompts] == [
        "class 207",
        "tench",
    ]


@pytest.mark.parametrize(
    ("name", "text", "said"),
    [
        ("p.txt", "\n \n", "is empty"),
        ("p.jsonl", '{"prompt": "a"}\n{"text": "b"}', r"line 2 has no text in column 'prompt' \(there: \['text'\]\)"),
        ("p.jsonl", '{"prompt": 3}', "line 1"),
        ("p.jsonl", "{", "line 1: is no JSON"),
        ("p.jsonl", "\n", "is empty"),
        ("p.jsonl", "[1]", "line 1: is a list"),
    ],
)
def test_a_broken_file_is_named_with_its_line(tmp_path: Path, name: str, text: str, said: str) -> None:
    (tmp_path / name).write_text(text)
    with pytest.raises(ConfigError, match=said):
        PromptFile(path=str(tmp_path / name)).read()
