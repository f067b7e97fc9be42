"""The section on tools of the guide to language, run as it stands on a model that was taught to call."""

from __future__ import annotations

import json
import re
import tomllib
from pathlib import Path
from typing import Any

import pytest
from tests.domain.language.calling_model import calling_model

from groupwise.config import validate
from groupwise.domain.language.environment import ChatTools
from groupwise.track import read_metrics

PAGE = Path(__file__).resolve().parents[2] / "docs" / "guide" / "language.md"
SECTION = PAGE.read_text(encoding="utf-8").partition("### Tools\n")[2].partition("\n## ")[0]


def test_the_script_runs_as_it_stands(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    model, tokenizer = calling_model()
    model.save_pretrained("my-model")
    tokenizer.save_pretrained("my-model")
    (script,) = re.findall(r"^```python[^\n]*\n(.*?)^```", SECTION, re.MULTILINE | re.DOTALL)
    namespace: dict[str, Any] = {"__name__": "tools_page"}
    exec(compile(script, PAGE.name, "exec"), namespace)
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
