"""The page on selection: the way from files of one's own to a selector runs as it is written, on fewer questions."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import numpy as np
import pytest

import groupwise
from groupwise.cli.app import main
from groupwise.config import ConfigError
from groupwise_selection.embedder import HashedWords

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
