"""The page on exported selectors: every block of Python runs, and every block of TOML is a task model."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pytest
from pydantic import TypeAdapter
from tests.domain.selection.small_selector import small_selector

from groupwise.config import validate
from groupwise.domain.selection.task_model.pretrained_config import CausalLM, ImageText

PAGE = (Path(__file__).parents[2] / "docs" / "guide" / "selection_export.md").read_text()


def blocks(language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", PAGE, re.DOTALL)


@pytest.mark.parametrize("number", range(3), ids=["select", "langchain", "dspy"])
def test_every_block_of_python_runs(number, tmp_path, monkeypatch, capsys):
    small_selector().save(tmp_path / "ticket-selector")
    monkeypatch.chdir(tmp_path)
    code = blocks("python")[number]
    assert sum(bool(line.strip()) for line in code.splitlines()) <= 13
    names: dict = {}
    exec(compile(code, "selection_export.md", "exec"), names)
    printed = capsys.readouterr().out
    if number == 0:
        assert len(printed.splitlines()) == 2 + 3
        assert (tmp_path / "ticket-selector-2" / "selector.json").is_file()
    if number == 1:
        assert printed.count(":") == 5
        assert printed == names["prompt"].example_selector.selector.prompt("north gold web kim new atlas") + "\n"
    if number == 2:
        assert [set(demo.keys()) for demo in names["demos"]] == [{"question", "answer"}] * 4
    assert len(blocks("python")) == 3


def test_every_block_of_toml_is_a_task_model():
    found = [tomllib.loads(block)["domain"]["task_model"] for block in blocks("toml")]
    assert [
        validate({"causal_lm": CausalLM, "image_text": ImageText}[table["kind"]], table).template.kind
        for table in found
    ] == ["text", "chat"]
    assert (
        TypeAdapter(CausalLM).validate_json('{"path": "models/Qwen2.5-0.5B"}').template
        == validate(CausalLM, found[0]).template
    )
