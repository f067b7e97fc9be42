"""The page on selection: the way from files of one's own to a selector runs as it is written, on fewer questions."""

from __future__ import annotations

import json
import re
import sys
import tomllib
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from pydantic import TypeAdapter
from tests.domain.language.calling_model import calling_model
from tests.selection.small_selector import small_selector

import groupwise
from groupwise.cli.app import main
from groupwise.config import ConfigError, validate
from groupwise.domain.language.environment import ChatTools
from groupwise.track import read_metrics
from groupwise_selection.embedder import HashedWords
from groupwise_selection.task_model.config import CausalLM, ImageText

PAGE = (Path(__file__).parents[2] / "docs" / "guide" / "selection.md").read_text()


def block(language: str, holding: str) -> str:
    (found,) = [block for block in re.findall(rf"```{language}\n(.*?)```", PAGE, re.DOTALL) if holding in block]
    return found


def groupwise_command(monkeypatch: pytest.MonkeyPatch, *arguments: str) -> int:
    monkeypatch.setattr(sys, "argv", ["groupwise", *arguments])
    try:
        main()
    except SystemExit as end:
        return int(end.code or 0)
    return 0


@pytest.mark.slow
def test_questions_in_files_are_trained_on_and_the_policy_selects(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    code = block("python", "queries.jsonl").replace(
        "Tickets(num_held_out=1024)", "Tickets(num_train=20, num_validation=3, num_held_out=6)"
    )
    exec(compile(code, "selection.md", "exec"), {})
    Path("my_questions.toml").write_text(block("toml", "my_questions"))
    small = [
        "domain.task_model={ kind = 'ticket_lm', width = 16, num_steps = 3, batch_size = 4 }",
        "domain.evaluation={ num_oracle = 2, num_fixed = 2, num_resamples = 10 }",
        "train.num_steps=2",
        "train.prompts_per_step=4",
        "track.console=none",
    ]
    commands = [line.split() for line in block("bash", "my_questions.toml").splitlines()]
    assert [command[:2] for command in commands] == [["groupwise", "train"], ["groupwise", "export"]]
    assert groupwise_command(monkeypatch, *commands[0][1:], *small, "--out", "runs/RUN") == 0
    assert "| ours |" in Path("runs/RUN/tables/baselines.md").read_text()
    assert groupwise_command(monkeypatch, *commands[1][1:]) == 0
    # The vectors came from files: whoever uses the selector brings the embedder.
    selector = groupwise.Selector.load("my-selector", embed=HashedWords())
    found = selector.select("north gold web kim new atlas")
    assert 1 <= len(found) <= 4
    assert len(found) == 4, "it starts as nearest neighbours, and ends before four only where that has paid"
    with pytest.raises(ConfigError, match="this selector has no embedder"):
        groupwise.Selector.load("my-selector").select("a text")
    assert np.allclose(selector.examples[0].embedding, HashedWords()([selector.examples[0].question])[0])


# The page on exported selectors: every block of Python runs, every block of TOML is a task model, and the table is
# what was measured.


ROOT = Path(__file__).parents[2]
SELECTION_EXPORT_PAGE = (ROOT / "docs" / "guide" / "selection_export.md").read_text()


def blocks(language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", SELECTION_EXPORT_PAGE, re.DOTALL)


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
        assert f"| **{name}** | " + " | ".join(cells) + " |" in SELECTION_EXPORT_PAGE
    for name in ("random", "kNN", "kNN, as exported"):
        assert f"| {name} | " + " | ".join(map(short, results["baselines"][name])) + " |" in SELECTION_EXPORT_PAGE
    for name, title in (("kNN", "kNN"), ("MMR 0.7", "MMR")):
        lead = results["lead"][name]
        cells = [f"+{short(mean)} (> +{short(low)})" for mean, low in zip(lead["mean"], lead["low"], strict=True)]
        assert f"| lead over {title} | " + " | ".join(cells) + " |" in SELECTION_EXPORT_PAGE


# The section on tools of the guide to language, run as it stands on a model that was taught to call.


TOOLS_PAGE = Path(__file__).resolve().parents[2] / "docs" / "guide" / "language.md"
SECTION = TOOLS_PAGE.read_text(encoding="utf-8").partition("### Tools\n")[2].partition("\n## ")[0]


@pytest.mark.slow
def test_the_script_runs_as_it_stands(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    model, tokenizer = calling_model()
    model.save_pretrained("my-model")
    tokenizer.save_pretrained("my-model")
    (script,) = re.findall(r"^```python[^\n]*\n(.*?)^```", SECTION, re.MULTILINE | re.DOTALL)
    namespace: dict[str, Any] = {"__name__": "tools_page"}
    exec(compile(script, TOOLS_PAGE.name, "exec"), namespace)
    steps = [row for row in read_metrics(tmp_path / "runs/tools/metrics.jsonl") if "logged/tools/call_frequency" in row]
    assert len(steps) >= 2
    assert steps[0]["logged/tools/call_frequency"] > 0
    config = json.loads(Path("runs/tools/config.json").read_text(encoding="utf-8"))
    assert config["domain"]["environment"]["kind"] == "chat_tools"
    assert config["objects"]["tools_0"]["argument"] == "tools[0]"


def test_the_table_states_the_defaults(monkeypatch: pytest.MonkeyPatch) -> None:
    (table,) = re.findall(r"^```toml\n(.*?)^```", SECTION, re.MULTILINE | re.DOTALL)
    stated = tomllib.loads(table)["domain"]["environment"]
    defaults = {name: field.default for name, field in ChatTools.model_fields.items() if name in stated}
    assert {name: value for name, value in stated.items() if name != "tools"} == {
        name: value for name, value in defaults.items() if name != "tools"
    }
    assert validate(ChatTools, stated).tools == ("my_tools:add", "my_tools:search")
