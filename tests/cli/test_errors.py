"""What is told in one message, and what keeps its traceback."""

import json
import shutil
from datetime import timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch.distributed as dist
from tests.domain.test_failed_method import told
from tests.marks import slow_but

from groupwise import load_experiment, train
from groupwise.cli.output import message_for_user, print_error
from groupwise.config import ConfigError, read_toml
from groupwise.objective import Objective
from groupwise.training.distributed import World

# The command as a whole.


def test_every_verb_is_there_and_explains_itself(groupwise):
    out = groupwise("--help").out
    for verb in ("train", "resume", "check", "evaluate", "sample", "compare", "doctor", "export", "methods", "schema"):
        assert verb in out
        ended = groupwise(verb, "--help")
        assert (ended.status, ended.err) == (0, "")
        assert f"groupwise {verb}" in ended.out


# What a user can get wrong is one readable message, exit status 2, and nothing left behind.


BROKEN = {
    "an unknown experiment": (["langage"], "'langage' is neither a shipped experiment nor a file"),
    "a value without a key": (["TINY", "dapo"], "write key=value"),
    "a model folder that is not there": (["TINY", "--model", "nowhere/model"], "nowhere/model"),
    "a run folder inside a file": (["TINY", "--out", "FILE/run"], "cannot be written"),
    "a run folder that exists": (["TINY", "--out", "RUN"], "holds a run already"),
    "a model folder without a tokenizer": (["TINY", "--model", "MODEL"], "tokenizer"),
    "an empty data set": (
        [
            "TINY",
            "domain.data.source.kind=files",
            "domain.data.source.paths=[EMPTY]",
            "domain.demonstrations=null",
            "stages=[]",
            "controls=null",
        ],
        "empty",
    ),
}


@pytest.fixture
def places(tmp_path: Path, tiny_file: Path, finished: Path) -> dict[str, Path]:
    (tmp_path / "file").write_text("text")
    (tmp_path / "empty.jsonl").write_text("")
    model = tmp_path / "model"
    model.mkdir()
    for name in ("config.json", "model.safetensors"):
        shutil.copy(finished / "model" / name, model / name)
    return {
        "TINY": tiny_file,
        "FILE": tmp_path / "file",
        "EMPTY": tmp_path / "empty.jsonl",
        "RUN": finished,
        "MODEL": model,
    }


QUICK = [
    *("an unknown experiment", "a value without a key", "a run folder that exists"),
    *("a model folder without a tokenizer", "an empty data set"),
]


@pytest.mark.parametrize("case", slow_but(QUICK, BROKEN))
def test_a_clear_error_before_anything_is_computed(case: str, groupwise, places: dict[str, Path], tmp_path: Path):
    arguments, expected = BROKEN[case]
    for name, path in places.items():
        arguments = [argument.replace(name, str(path)) for argument in arguments]
    ended = groupwise("train", *arguments, *([] if "--out" in arguments else ["--out", tmp_path / "out"]))
    assert ended.status == 2, ended
    assert ended.err.startswith("error: ")
    assert expected in ended.err
    assert "Traceback" not in ended.err
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("verb", ["resume", "evaluate", "sample", "doctor"])
def test_a_folder_that_is_no_run(verb: str, groupwise, tmp_path: Path):
    assert "no such" in groupwise(verb, tmp_path / "nowhere").err
    (tmp_path / "other").mkdir()
    ended = groupwise(verb, tmp_path / "other")
    assert ended.status == 2
    assert ("holds no run" if verb == "doctor" else "is not a run folder") in ended.err


def test_a_models_folder_is_no_run_to_go_on_with(groupwise, tmp_path: Path):
    (tmp_path / "config.json").write_text('{"model_type": "qwen3"}')
    ended = groupwise("resume", tmp_path)
    assert (ended.status, "it is not what `groupwise train` wrote" in ended.err) == (2, True)


def test_a_run_folder_that_was_damaged(groupwise, finished: Path, tmp_path: Path):
    run = tmp_path / "run"
    shutil.copytree(finished, run)
    whole = (run / "config.json").read_text()
    (run / "config.json").write_text(whole[:200])
    for verb in (
        ["resume"],
        ["evaluate"],
        ["sample"],
        ["export", "--out", tmp_path / "model"],
        ["train", "--out", tmp_path / "again"],
    ):
        ended = groupwise(verb[0], run, *verb[1:])
        assert (ended.status, "config.json: is no JSON" in ended.err) == (2, True), (verb, ended)
    (run / "config.json").write_text('{"seed": 0}')
    assert "lacks name, method, trust, domain" in groupwise("export", run, "--out", tmp_path / "model").err
    (run / "config.json").write_text(whole)
    (run / "summary.json").write_text('{"metric": ')
    assert "summary.json: is no JSON" in groupwise("export", run, "--out", tmp_path / "model").err
    assert not (tmp_path / "model").exists()


def caught(call) -> BaseException:
    try:
        call()
    except Exception as error:
        return error
    raise AssertionError("nothing was raised")


def test_what_a_room_raises_on_purpose_is_for_the_user():
    assert message_for_user(caught(lambda: read_toml("nowhere.toml"))) == "no such file: nowhere.toml"
    assert "did you mean dapo" in (message_for_user(caught(lambda: Objective.preset("dappo"))) or "")


def test_an_exception_of_a_library_is_reported_as_a_defect():
    from groupwise.domain.language.source.toys import follow

    assert message_for_user(caught(lambda: int("x"))) is None
    # Raised inside one of our lines, not by one of our `raise`s.
    assert message_for_user(caught(lambda: follow(1, [(1,)]))) is None
    assert message_for_user(ConfigError("raised by nobody")) is None


@pytest.mark.parametrize(("rank", "own", "broken"), [("0", [], [10.0]), ("1", [5.0], [10.0])])
def test_who_waits_before_it_tells(
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    rank: str,
    own: list[float],
    broken: list[float],
) -> None:
    waited: list[float] = []
    monkeypatch.setattr("groupwise.cli.output.time.sleep", waited.append)
    monkeypatch.setenv("RANK", rank)
    assert print_error(caught(lambda: read_toml("nowhere.toml"))) == 2
    assert waited == own
    waited.clear()

    # Nobody listens there: what a connection that breaks later raises comes from the same place.
    # No group is begun: one that fails still takes a name, and torch keeps meshes by the names of their groups.
    def connect() -> Any:
        return next(dist.rendezvous("tcp://127.0.0.1:1", 1, 2, timeout=timedelta(milliseconds=1)))

    assert print_error(caught(connect)) == 1
    assert waited == broken
    assert (
        "the connection to another process broke; where that one ended, what it said says why: Dist"
        in capsys.readouterr().err
    )
    waited.clear()

    def store_ends() -> None:
        raise dist.DistNetworkError("Broken pipe")  # from C++, without a frame of its own

    assert print_error(caught(store_ends)) == 1
    assert waited == broken
    assert "the connection to another process broke" in capsys.readouterr().err
    waited.clear()
    # Where another process said that it left, its sentence stands in the place of the connection's.
    rendezvous = SimpleNamespace(left=lambda: "process 2 has left the run: no more", leave=lambda reason: None)

    def breaks() -> None:
        with World(rendezvous=rendezvous).reporting_errors():  # type: ignore[arg-type]
            connect()

    assert print_error(caught(breaks)) == 1
    assert waited == broken
    assert "process 2 has left the run: no more" in capsys.readouterr().err


# A method of a user's domain that raises ends every verb that calls it in one line.


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


# Options of other systems on the command line.


def test_a_sources_options_are_answered_with_ours(groupwise):
    ended = groupwise("train", "source_001_improved", "--grpo", "--grpo_clip_range", "0.1", "--lr", "5e-6")
    assert ended.status == 2
    assert ended.err.count("is written") == 3
    assert (
        "source 001's --grpo_clip_range 0.1 is written trust.kind=clip trust.low=0.1 trust.high=0.1"
        " train.updates_per_batch=2 here" in ended.err
    )
