"""Every verb, on a run folder of somebody else's: what names code is asked about, what needs none does not ask, and
nothing runs before the word.
"""

from __future__ import annotations

import json
import shutil
import sys
from pathlib import Path
from typing import Any

import pytest
from tests.cli.test_restored import DIGITS

ASKED_AT_ONCE = ["evaluate", "resume", "train config.json", "sample"]
ASKED = [
    *ASKED_AT_ONCE,
    "estimate",
    "check",
    "train",
    "compare",
    "evaluate --experiment",
]
SILENT = ["sample --prompt", "export", "report", "doctor"]


def words(verb: str, run: Path) -> list[str]:
    given = {
        "train": ["train", str(run), "--out", "new"],
        "train config.json": ["train", str(run / "config.json"), "--out", "new"],
        "compare": ["compare", str(run), "--vary", "train.group_size=2,4", "--seeds", "1", "--out", "compared"],
        "sample --prompt": ["sample", str(run), "--prompt", "sort 3 1 2 ?"],
        "evaluate --experiment": ["evaluate", str(run / "model"), "--experiment", str(run)],
        "export": ["export", str(run), "--out", "exported"],
    }
    return given.get(verb, [verb, str(run)])


@pytest.fixture
def theirs(finished: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A finished run that names commands in place of functions: as its map, after its steps, as its trust region, as a
    reward and as a judge.
    """
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.delenv("GROUPWISE_RUN_CODE", raising=False)
    run = tmp_path / "theirs"
    shutil.copytree(finished, run)
    table = json.loads((run / "config.json").read_text())
    change(table["domain"])
    table["train"]["callbacks"] = ["os:abort"]
    table["objective"]["trust"] = {
        "kind": "callable",
        "path": "subprocess:Popen",
        "settings": {"args": ["touch", "PWNED"]},
    }
    (run / "config.json").write_text(json.dumps(table))
    (tmp_path / "rows.jsonl").write_text('{"touch": 1, "PWNED": 2}\n' * 99)
    return run


def change(domain: dict[str, Any]) -> None:
    domain["data"] |= {"map": "subprocess:check_call", "source": {"kind": "files", "paths": ["rows.jsonl"]}}
    command = {"kind": "callable", "path": "subprocess:check_call", "arguments": {"args": ["touch", "PWNED"]}}
    domain["rewards"] |= {"r": command, "j": {**command, "role": "judge"}}


@pytest.mark.parametrize(
    "verb",
    [verb if verb in ASKED_AT_ONCE else pytest.param(verb, marks=pytest.mark.slow) for verb in ASKED],
)
def test_a_verb_that_would_run_code_names_all_of_it_and_runs_none(groupwise, theirs: Path, tmp_path: Path, verb: str):
    ended = groupwise(*words(verb, theirs))
    assert ended.status == 2, ended
    assert "domain.data.map = subprocess:check_call" in ended.err
    assert "write --run-code (GROUPWISE_RUN_CODE=1 in a job's template)" in ended.err
    if verb != "sample":
        assert all(
            f"{key} = " in ended.err
            for key in ("trust.path", "train.callbacks[0]", "domain.rewards.r.path", "domain.rewards.j.path")
        )
    assert ended.err.count("\n") == 1
    assert not (tmp_path / "PWNED").exists()
    assert not (tmp_path / "new").exists()


@pytest.mark.parametrize("verb", SILENT)
def test_a_verb_that_needs_no_code_asks_nothing_and_runs_none(groupwise, theirs: Path, tmp_path: Path, verb: str):
    ended = groupwise(*words(verb, theirs))
    assert (ended.status, ended.err) == (0, ""), ended
    assert not (tmp_path / "PWNED").exists()


def test_with_the_word_it_runs(groupwise, theirs: Path, tmp_path: Path):
    groupwise("sample", theirs, "--run-code")
    assert (tmp_path / "PWNED").exists()


def test_with_the_word_in_the_environment_it_runs(
    groupwise, theirs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("GROUPWISE_RUN_CODE", "1")
    groupwise("sample", theirs)
    assert (tmp_path / "PWNED").exists()


def test_what_sample_may_run_is_what_it_needs(groupwise, theirs: Path, tmp_path: Path):
    table = json.loads((theirs / "config.json").read_text())
    (tmp_path / "rows_of_mine.py").write_text(
        "def ask(row):\n    return {'prompt': 'sort 3 1 2 ?', 'answer': '1 2 3', **row}\n"
    )
    (tmp_path / "rows.jsonl").write_text(
        "".join(json.dumps({"prompt": f"sort {n // 10} {n % 10} 1 ?"}) + "\n" for n in range(99))
    )
    table["domain"]["data"] |= {"map": "rows_of_mine:ask", "num_train": 20}
    (theirs / "config.json").write_text(json.dumps(table))
    refused = groupwise("sample", theirs)
    assert "domain.data.map = rows_of_mine:ask" in refused.err
    assert "check_call" not in refused.err
    ended = groupwise("sample", theirs, "--run-code")
    assert (ended.status, ended.err) == (0, ""), ended
    assert ended.out.count("sort ") == 3
    # Once told, not again.
    assert groupwise("sample", theirs).out == ended.out
    assert not (tmp_path / "PWNED").exists()


NETWORK = """
import torch

class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Conv2d(1, 1, 1)

    def forward(self, x):
        return self.layer(x)
"""


@pytest.mark.slow
def test_a_network_that_is_code_is_asked_about_with_its_folder(
    groupwise, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.setattr(sys, "path", list(sys.path))
    (tmp_path / "nets_of_mine.py").write_text(NETWORK)
    custom = '[domain.model.network]\nkind = "callable"\npath = "nets_of_mine:Net"\nchannels = 1\n'
    plain = '[domain.model.network]\nkind = "residual"\nwidth = 4\ndepth = 1\n'
    (tmp_path / "mine.toml").write_text(DIGITS.replace(plain, custom))
    assert groupwise("train", "mine.toml", "train.num_steps=1", "--out", "run").status == 0
    for verb in ("sample", "evaluate"):
        ended = groupwise(verb, "run")
        assert (ended.status, ended.err) == (0, ""), ended
    shutil.copytree("run", "theirs")
    asked = groupwise("sample", "theirs")
    assert asked.err.count("domain.model.network.path = nets_of_mine:Net") == asked.err.count("nets_of_mine:Net") == 1
    # What the model's folder alone says is asked about in one's own run too.
    saved = json.loads((tmp_path / "run" / "model" / "network.json").read_text())
    saved["network"] |= {"path": "subprocess:check_call", "arguments": {"popenargs": ["touch", "PWNED"]}}
    (tmp_path / "run" / "model" / "network.json").write_text(json.dumps(saved))
    elsewhere = [
        ["evaluate", "run/model", "--experiment", "restoration"],
        ["check", "restoration", "--model", "run/model"],
    ]
    for command in (["sample", "run"], ["evaluate", "run"], *elsewhere):
        refused = groupwise(*command)
        assert refused.status == 2, refused
        assert "run/model/network.json.network.path = subprocess:check_call" in refused.err
    assert not (tmp_path / "PWNED").exists()
