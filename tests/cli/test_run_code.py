"""Run folders of a stranger: no verb runs their code without `--run-code`, and what is refused names the place and what
to write.
"""

import json
import shutil
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.cli.test_restored import DIGITS
from tests.marks import slow_but

from groupwise import load_run

TRAP = "open({marker!r}, 'w')\nclass Domain: ...\ndef f(*_, **__): ...\n"
COMMAND = {"kind": "callable", "path": "subprocess:check_call", "arguments": {"args": ["touch", "PWNED"]}}
Change = Callable[[Path, dict[str, Any]], Any]


def code_in_the_model(run: Path, table: dict[str, Any]) -> None:
    shutil.copy(run / "trap.py", run / "model" / "trap.py")
    for name, classes in {"config": ["AutoModelForCausalLM"], "tokenizer_config": ["AutoTokenizer"]}.items():
        file = run / "model" / f"{name}.json"
        auto_map = dict.fromkeys([*classes, "AutoConfig"], "trap.Domain")
        file.write_text(json.dumps({**json.loads(file.read_text()), "auto_map": auto_map}))


def hostile_tokenizer(run: Path, table: dict[str, Any]) -> None:
    file = run / "model" / "tokenizer_config.json"
    template = "{{ ''.__class__.__mro__[1].__subclasses__()[0].__init__.__globals__['os'].system('touch PWNED') }}"
    settings = {"chat_template": template, "tokenizer_class": "trap.Domain"}
    file.write_text(json.dumps({**json.loads(file.read_text()), **settings}))


HOSTILE: dict[str, tuple[str, Change]] = {
    "map": ("domain.data.map = trap:f", lambda run, table: table["domain"]["data"].update(map="trap:f")),
    "callback": ("train.callbacks[0] = os:abort", lambda run, table: table["train"].update(callbacks=["os:abort"])),
    "trust": (
        "trust.path = trap:Domain",
        lambda run, table: table.update(trust={"kind": "callable", "path": "trap:Domain"}),
    ),
    "domain": (
        "domain.path = trap:Domain",
        lambda run, table: table.update(domain={"kind": "callable", "path": "trap:Domain"}),
    ),
    "modules": (
        "domain.rewards.r.path = numpy:f",
        lambda run, table: table["domain"]["rewards"].update(r={"kind": "callable", "path": "numpy:f"}),
    ),
    "auto_map": ("", code_in_the_model),
    "tokenizer": ("", hostile_tokenizer),
    "start": ("", lambda run, table: table.update(start="started")),
}
"""What a folder does -> what the refusal names; empty where nothing is refused, since nothing would run."""

SILENT = {"report", "doctor", "export"}


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
def copied(finished: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A finished run, with modules in its folder that leave a mark when they are imported."""
    monkeypatch.delenv("GROUPWISE_RUN_CODE", raising=False)
    run = tmp_path / "theirs"
    shutil.copytree(finished, run)
    for name in ("trap", "numpy", "groupwise"):
        (run / f"{name}.py").write_text(TRAP.format(marker=str(tmp_path / "PWNED")))
    shutil.copy(run / "trap.py", tmp_path / "trap.py")
    return run


@pytest.mark.parametrize("name", slow_but(("callback", "domain", "auto_map"), HOSTILE))
def test_a_hostile_folder_runs_nothing(groupwise, copied: Path, tmp_path: Path, name: str) -> None:
    refusal, change = HOSTILE[name]
    table = json.loads((copied / "config.json").read_text())
    change(copied, table)
    (copied / "config.json").write_text(json.dumps(table))
    for verb in ("report", "doctor", "sample --prompt", "sample", "evaluate", "export", "resume"):
        ended = groupwise(*words(verb, copied))
        assert not (tmp_path / "PWNED").exists(), verb
        assert ended.err.count("\n") <= 1, ended
        if verb in SILENT:
            assert ended.status in (0, 3), (verb, ended)
        elif verb in ("evaluate", "resume") and refusal:
            assert ended.status == 2, (verb, ended)
            assert refusal in ended.err
            assert "write --run-code (GROUPWISE_RUN_CODE=1 in a job's template)" in ended.err


@pytest.fixture
def theirs(copied: Path, tmp_path: Path) -> Path:
    """A finished run that names commands in place of functions, at many places."""
    table = json.loads((copied / "config.json").read_text())
    domain = table["domain"]
    domain["data"] |= {"map": "subprocess:check_call", "source": {"kind": "files", "paths": ["rows.jsonl"]}}
    domain["rewards"] |= {"r": COMMAND, "j": {**COMMAND, "role": "judge"}}
    table["train"]["callbacks"] = ["os:abort"]
    table["trust"] = {"kind": "callable", "path": "subprocess:Popen", "settings": {"args": ["touch", "PWNED"]}}
    (copied / "config.json").write_text(json.dumps(table))
    (tmp_path / "rows.jsonl").write_text('{"touch": 1, "PWNED": 2}\n' * 99)
    return copied


@pytest.mark.parametrize(
    "verb",
    slow_but(("train config.json",), ("train config.json", "check", "train", "compare", "evaluate --experiment")),
)
def test_a_verb_that_would_run_code_names_all_of_it(groupwise, theirs: Path, tmp_path: Path, verb: str):
    ended = groupwise(*words(verb, theirs))
    assert ended.status == 2, ended
    keys = ("domain.data.map", "trust.path", "train.callbacks[0]", "domain.rewards.r.path", "domain.rewards.j.path")
    assert all(f"{key} = " in ended.err for key in keys)
    assert ended.err.count("\n") == 1
    assert not (tmp_path / "PWNED").exists()
    assert not (tmp_path / "new").exists()


def test_with_the_word_it_runs(groupwise, theirs: Path, tmp_path: Path):
    groupwise("sample", theirs, "--run-code")
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
    monkeypatch.setattr(sys, "path", list(sys.path))
    (tmp_path / "nets_of_mine.py").write_text(NETWORK)
    custom = '[domain.model.network]\nkind = "callable"\npath = "nets_of_mine:Net"\nchannels = 1\n'
    plain = '[domain.model.network]\nkind = "residual"\nwidth = 4\ndepth = 1\n'
    (tmp_path / "mine.toml").write_text(DIGITS.replace(plain, custom))
    assert groupwise("train", "mine.toml", "train.num_steps=1", "--out", "run").status == 0
    for verb in ("sample", "evaluate"):
        ended = groupwise(verb, "run", "--run-code")
        assert (ended.status, ended.err) == (0, ""), ended
    asked = groupwise("sample", "run")
    assert asked.err.count("network.json.network.path = nets_of_mine:Net") == asked.err.count("nets_of_mine:Net") == 1
    saved = json.loads((tmp_path / "run" / "model" / "network.json").read_text())
    saved["network"] |= {"path": "subprocess:check_call", "arguments": {"popenargs": ["touch", "PWNED"]}}
    (tmp_path / "run" / "model" / "network.json").write_text(json.dumps(saved))
    elsewhere = [
        ["evaluate", "run/model", "--experiment", "restoration"],
        ["check", "restoration", "--model", "run/model"],
    ]
    for command in (["sample", "run"], ["evaluate", "run"]):
        assert groupwise(*command).status == 2
    for command in elsewhere:
        refused = groupwise(*command)
        assert refused.status == 2, refused
        assert "run/model/network.json.network.path = subprocess:check_call" in refused.err
    assert not (tmp_path / "PWNED").exists()


# Run folders that another version wrote: 0.1.0's, recorded with its code, and one of a later version.


RECORDED = Path(__file__).resolve().parents[1] / "golden" / "runs_0_1"


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The runs of 0.1.0, and one that says it is of 9.1.0."""
    folder = tmp_path_factory.mktemp("runs") / "of"
    shutil.copytree(RECORDED, folder)
    shutil.copytree(folder / "language", folder / "later")
    file = folder / "later" / "environment.json"
    file.write_text(file.read_text().replace('"groupwise": "0.1.0"', '"groupwise": "9.1.0"'))
    return folder


GOING_ON = {
    "resume": ("resume", "{run}"),
    "evaluate": ("evaluate", "{run}"),
    "sample": ("sample", "{run}"),
    "check": ("check", "{run}"),
    "train": ("train", "{run}", "--out", "{new}"),
    "train its file": ("train", "{run}/config.json", "--out", "{new}"),
    "start": ("train", "language", "start={run}", "--out", "{new}"),
    "compare": ("compare", "{run}", "--vary", "method=grpo,dapo", "--out", "{new}"),
}


EXPECTED = {
    "language": "was written by Groupwise 0.1.0, whose configuration and checkpoints",
    "later": "was written by Groupwise 9.1.0, and",
}
QUICK = [("language", "resume"), ("language", "compare"), ("later", "train"), ("later", "sample")]


@pytest.mark.parametrize(
    ("run", "name"),
    [
        pytest.param(run, name, marks=() if (run, name) in QUICK else pytest.mark.slow)
        for run in EXPECTED
        for name in GOING_ON
    ],
)
def test_who_goes_on_with_it_says_in_one_line_which_version_can(
    groupwise, runs: Path, tmp_path: Path, name: str, run: str
) -> None:
    words = [word.format(run=runs / run, new=tmp_path / "new") for word in GOING_ON[name]]
    ended = groupwise(*words)
    assert ended.status == 2
    [line] = ended.err.strip().splitlines()
    assert EXPECTED[run] in line
    assert line.startswith("error: ")
    assert ("go on with 0.1.0 (pip install" if run == "language" else "install 9.1.0 or later") in line
    assert not (tmp_path / "new").exists()


def test_a_comparison_is_not_continued_in_the_folder_of_another_version(groupwise, runs: Path) -> None:
    ended = groupwise(
        "compare",
        "restoration",
        *("--vary", "method=grpo,dapo", "--seeds", "2", "--out", runs / "grid"),
        *("stages.supervised.num_steps=3", "stages.grpo.num_steps=2"),
    )
    assert ended.status == 2
    assert "was written by Groupwise 0.1.0" in ended.err


@pytest.mark.parametrize("run", ["language", "restoration", "later"])
def test_the_doctor_reads_it(groupwise, runs: Path, run: str) -> None:
    ended = groupwise("doctor", runs / run)
    assert ended.status == 0
    assert "Nothing wrong found in" in ended.out


def test_the_report_shows_runs_controls_groups_and_the_comparison(groupwise, runs: Path, tmp_path: Path) -> None:
    page = tmp_path / "page.html"
    ended = groupwise("report", runs / "language", runs / "restoration", runs / "grid", "--out", page)
    assert ended.status == 0
    assert "6 runs" in ended.out
    text = page.read_text()
    for shown in ("greedy/", "restored/", "method=dapo", "rejection_sampling"):
        assert shown in text, shown


def test_a_run_of_another_version_is_loaded_as_tables(runs: Path) -> None:
    loaded = load_run(runs / "language")
    assert loaded.metrics.num_rows == len((runs / "language" / "metrics.jsonl").read_text().splitlines())
    assert "loss" in loaded.metrics.column_names
    assert loaded.rollouts.num_rows == 3
    assert loaded.summary["steps"] == json.loads((runs / "language" / "summary.json").read_text())["steps"]


def test_the_model_of_another_version_is_exported(groupwise, runs: Path, tmp_path: Path) -> None:
    ended = groupwise("export", runs / "restoration", "--out", tmp_path / "model")
    assert ended.status == 0
    assert (tmp_path / "model" / "model.safetensors").is_file()
