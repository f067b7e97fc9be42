"""The page on exported selectors: every block of Python runs, every block of TOML is a task model, and the table is
what was measured.
"""

from __future__ import annotations

import json
import re
import tomllib
from pathlib import Path

import pytest
from pydantic import TypeAdapter
from tests.selection.small_selector import small_selector

from groupwise.config import validate
from groupwise_selection.task_model.config import CausalLM, ImageText

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "guide" / "selection_export.md").read_text()


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


def test_the_table_is_what_was_measured() -> None:
    """Renewed by `python benchmarks/selection.py RUN ... --out benchmarks/results/selection_text.json`."""
    results = json.loads((ROOT / "benchmarks" / "results" / "selection_text.json").read_text())

    def short(value: float) -> str:
        return f"{value:.3f}".removeprefix("0")

    for name in ("ours", "ours, as exported"):
        scores = results["ours"][name]
        cells = [
            f"**{short(mean)}** ({short(low)} to {short(high)})"
            for mean, low, high in zip(scores["mean"], scores["lowest"], scores["highest"], strict=True)
        ]
        assert f"| **{name}** | " + " | ".join(cells) + " |" in PAGE
    for name in ("random", "kNN", "kNN, as exported"):
        assert f"| {name} | " + " | ".join(map(short, results["baselines"][name])) + " |" in PAGE
    for name, title in (("kNN", "kNN"), ("MMR 0.7", "MMR")):
        lead = results["lead"][name]
        cells = [f"+{short(mean)} (> +{short(low)})" for mean, low in zip(lead["mean"], lead["low"], strict=True)]
        assert f"| lead over {title} | " + " | ".join(cells) + " |" in PAGE
