"""A method of a user's domain that raises ends every verb that calls it in one line."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
from tests.domain.test_failed_method import told

from groupwise import load_experiment, train


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("trained")
    (folder / "walk.toml").write_text(
        'description = "A walk."\nmethod = "grpo"\n'
        '[domain]\nkind = "callable"\npath = "tests.domain.test_failed_method:Failing"\n'
        "[train]\nnum_steps = 1\nprompts_per_step = 2\ngroup_size = 2\n",
        encoding="utf-8",
    )
    return train(load_experiment(folder / "walk.toml", run_code=True), out=folder / "run").folder.path


@pytest.fixture
def run(trained: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(trained, tmp_path / "run"))


@pytest.mark.parametrize(
    ("words", "method"),
    [
        (("evaluate", "run"), "evaluate"),
        (("evaluate", "run"), "tables"),
        (("evaluate", "run"), "load"),
        (("sample", "run"), "prompts"),
        (("sample", "run"), "sample"),
        (("sample", "run"), "describe"),
        (("sample", "run", "--prompt", "3"), "asked"),
        (("sample", "run", "--chat"), "conversation"),
    ],
)
def test_a_verb_ends_in_one_line(groupwise, run: Path, words: tuple[str, ...], method: str) -> None:
    config = json.loads((run / "config.json").read_text(encoding="utf-8"))
    config["domain"]["settings"] = {**config["domain"]["settings"], "method": method}
    (run / "config.json").write_text(json.dumps(config), encoding="utf-8")
    ended = groupwise(*words, "--run-code")
    assert ended.status == 2
    told(ended.err, method)
    assert "Traceback" not in ended.err


def test_the_verbs_that_call_no_method_go_on(groupwise, run: Path) -> None:
    config = json.loads((run / "config.json").read_text(encoding="utf-8"))
    config["domain"]["settings"] = {**config["domain"]["settings"], "method": "evaluate"}
    (run / "config.json").write_text(json.dumps(config), encoding="utf-8")
    assert groupwise("export", "run", "--out", "exported", "--run-code").status == 0
    assert groupwise("doctor", "run").status in (0, 1)
    assert groupwise("report", "run").status == 0


@pytest.mark.parametrize(
    ("words", "method", "sentence"),
    [
        (("evaluate", "run"), "evaluate", "it returned a str; return groupwise.domain.protocol.Evaluation(metrics)"),
        (("evaluate", "run"), "tables", "it returned a str; return a list of groupwise.domain.protocol.Table"),
        (
            ("sample", "run"),
            "prompts",
            "it returned a str; return a list of groupwise.domain.protocol.Prompt, one an index",
        ),
        (("sample", "run"), "sample", "it returned a str; return groupwise.domain.protocol.Samples"),
        (("sample", "run"), "describe", "it returned a str; return a list of dicts, one a row"),
        (("sample", "run", "--prompt", "3"), "asked", "it returned a str; return one groupwise.domain.protocol.Prompt"),
        (("sample", "run", "--chat"), "conversation", "it returned a str; return one groupwise.domain.protocol.Prompt"),
    ],
)
def test_a_verb_names_what_a_method_returned(
    groupwise, run: Path, words: tuple[str, ...], method: str, sentence: str
) -> None:
    config = json.loads((run / "config.json").read_text(encoding="utf-8"))
    config["domain"]["settings"] = {**config["domain"]["settings"], "method": method, "returns": "something else"}
    (run / "config.json").write_text(json.dumps(config), encoding="utf-8")
    ended = groupwise(*words, "--run-code")
    assert ended.status == 2
    assert f"domain: Failing.{method}: {sentence} (docs/guide/write_your_own_domain.md)" in ended.err
    assert "Traceback" not in ended.err
