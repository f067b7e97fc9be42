"""A task of one's own: its options behind the command, the files that `init` writes, and the bound of its minutes."""

import json
import shutil
import sys
import traceback
from pathlib import Path
from typing import Any

import pytest
from tests.docs.page_commands import own_task

from groupwise import resume, train
from groupwise.config import ConfigError

SMALL = ["train.num_steps=2", "train.group_size=2", "train.prompts_per_step=2", "domain.sampling.max_new_tokens=3"]
OWN = ["--model", "models/small", "--prompts", "prompts.jsonl", "--reward", "my_rewards:correct"]


@pytest.fixture
def task(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    own_task(tmp_path)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delitem(sys.modules, "my_rewards", raising=False)
    return tmp_path


def trained(out: str, **settings: Any) -> Any:
    from my_rewards import correct  # pyright: ignore[reportMissingImports]

    small = {"train.group_size": 2, "domain.sampling.max_new_tokens": 3}
    return train("models/small", rewards=correct, data="prompts.jsonl", out=out, **small, **settings)


def test_three_options_are_an_experiment(groupwise, task: Path):
    ended = groupwise("train", *SMALL, *OWN, "--out", "runs/a", "--minutes", "10")
    assert ended.status == 0, ended
    config = json.loads((task / "runs/a/config.json").read_text())
    assert (config["name"], config["minutes"], config["stages"], config["controls"]) == ("prompts", 10, [], {})
    assert config["domain"]["data"]["source"]["paths"] == ["prompts.jsonl"]
    assert list(config["domain"]["rewards"]) == ["correct"]
    # The default of 12 rows: one is held out.
    assert len(list((task / "runs/a/rollouts").glob("evaluation-*.jsonl"))) == 2
    assert json.loads((task / "runs/a/summary.json").read_text())["steps"] == 2


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ([], "--model, --prompts, --reward: missing; write --model MODEL"),
        (OWN[:4], "--reward: missing"),
        ([*OWN[:4], "--reward", "exact_answr"], "did you mean exact_answer?"),
        ([*OWN[:4], "--reward", "my_rewards:corect"], "corect"),
        ([*OWN[:2], "--prompts", "prompts.docx", *OWN[4:]], "'prompts.docx' ends in '.docx'"),
        (["restoration", "--prompts", "prompts.jsonl"], "restoration domain reads no file of prompts"),
    ],
)
def test_an_option_that_is_missing_or_wrong_is_told(words: list[str], message: str, groupwise, task: Path):
    ended = groupwise("train", *words)
    assert ended.status == 2
    assert message in ended.err
    assert not list(task.glob("runs/*"))


def test_a_run_knows_the_folder_in_which_it_was_started(groupwise, task: Path, monkeypatch: pytest.MonkeyPatch):
    ended = groupwise("train", *SMALL, *OWN, "--out", "run")
    assert ended.status == 0, ended
    (task / "run/summary.json").unlink()
    (task / "elsewhere").mkdir()
    monkeypatch.chdir(task / "elsewhere")
    for verb in ("evaluate", "resume"):
        ended = groupwise(verb, task / "run", "--run-code")
        assert ended.status == 2
        assert f"{task / 'run'} was started in {task}, which holds " in ended.err
        assert "prompts.jsonl" in ended.err
    monkeypatch.chdir(task)
    shutil.rmtree(task / "models")
    assert "was started in" not in groupwise("resume", task / "run", "--run-code").err


def test_named_rewards_take_the_place_of_an_experiments_and_two_of_one_name_are_both_kept(groupwise, task: Path):
    Path("mine.toml").write_text(
        'extends = "prompts"\n[domain]\nmodel = { kind = "pretrained", path = "models/small" }\n'
        'data = { source = { kind = "files", paths = ["prompts.jsonl"] } }\n'
        '[domain.rewards.short]\nkind = "length"\ntarget = 3\n',
        encoding="utf-8",
    )
    (task / "other_rewards.py").write_text((task / "my_rewards.py").read_text())
    given = ["my_rewards:correct", "exact_answer", "other_rewards:correct"]
    options = [word for reward in given for word in ("--reward", reward)]
    ended = groupwise("train", "mine.toml", *SMALL, *options, "--out", "a")
    assert ended.status == 0, ended
    rewards = json.loads(Path("a/config.json").read_text())["domain"]["rewards"]
    paths = {"correct": "my_rewards:correct", "exact_answer": None, "correct_2": "other_rewards:correct"}
    assert {name: table.get("path") for name, table in rewards.items()} == paths


def test_an_error_in_what_was_written_shows_no_frame_of_ours_behind_the_call(task: Path):
    for call in (lambda: trained("a", metod="dapo"), lambda: resume("nowhere")):
        with pytest.raises(ConfigError) as caught:
            call()
        files = [frame.filename for frame in traceback.extract_tb(caught.value.__traceback__)]
        assert [Path(name).name for name in files if "groupwise" in Path(name).parts] == ["from_python.py"]
        assert caught.value.__cause__ is None


@pytest.mark.slow
def test_init_writes_a_task_that_runs(groupwise, task: Path):
    ended = groupwise("init", "sums", "--model", "models/small")
    assert ended.status == 0
    commands = [line.strip() for line in ended.out.splitlines() if line.startswith("  groupwise")]
    assert [words.split()[1] for words in commands] == ["check", "evaluate", "train"]
    for line in commands:
        words = line.split()[1:]
        shortened = [] if words[0] == "evaluate" else SMALL
        ended = groupwise(*words, *shortened)
        assert ended.status == 0, (line, ended)
    again = groupwise("init", "sums")
    assert again.status == 2
    assert "sums.toml, sums_rewards.py, sums.jsonl: stands here already" in again.err
    assert groupwise("init", "my-task").status == 2


def test_a_run_ends_with_its_minutes(task: Path):
    run = trained("a", minutes=0.02, **{"train.num_steps": 10**6})
    steps = [row["step"] for row in run.metrics]
    assert 1 <= run.summary["steps"] < 10**6
    assert f"eval/{run.summary['metric']}" in run.metrics[-1]  # the last evaluation was made
    assert steps[-1] == run.summary["steps"]


def test_a_step_takes_all_prompts_where_there_are_few(task: Path, capsys: pytest.CaptureFixture[str]):
    run = trained("a", **{"train.num_steps": 1})
    assert run.metrics[-1]["num_prompts_drawn"] == 11
    assert "a step takes all 11 training prompts (train.prompts_per_step = 16)" in capsys.readouterr().out
    assert run.report().is_file()
    assert "Nothing wrong" in repr(run.doctor()) or "warning" in repr(run.doctor()) or "note" in repr(run.doctor())
    assert "<polyline" in run._repr_html_()
    assert "prompts.jsonl" not in repr(run)
    with pytest.raises(AttributeError, match="a result has no 'reports'"):
        _ = run.reports
