"""`sample`: what a trained model writes."""

import json
from pathlib import Path

import pytest
from tests.domain.language.calling_model import calling_model

from groupwise.cli.output import console, print_text, shorten, table
from groupwise.cli.sample import _print_answer
from groupwise.domain.language.config import LanguageConfig
from groupwise.track.console import ConsoleTracker


def test_the_same_question_and_seed_give_the_same_answers(groupwise, finished: Path):
    first = groupwise("sample", finished, "--prompt", "sort 3 1 2 ?", "--num", 4, "--temperature", 1.5)
    assert first.status == 0, first
    assert first.out.count("sort 3 1 2 ?\n") == 4
    assert groupwise("sample", finished, "--prompt", "sort 3 1 2 ?", "--num", 4, "--temperature", 1.5).out == first.out
    assert (
        groupwise("sample", finished, "--prompt", "sort 3 1 2 ?", "--num", 4, "--temperature", 1.5, "--seed", 1).out
        != first.out
    )


def test_characters_that_turn_the_direction_of_writing_are_shown(capsys: pytest.CaptureFixture[str]):
    text = "a\u202eb\x1b[31m"
    print_text(text)
    console().print(table(["text"], [[text]]))
    _print_answer({"text": text})
    print(shorten(text, 80))
    ConsoleTracker(1, None, live=False, console=console()).note(text)
    written = capsys.readouterr().out
    assert written.count("a[U+202E]b\u241b[31m") == 5
    assert "\u202e" not in written


def test_without_a_question_training_prompts_are_answered(groupwise, finished: Path):
    ended = groupwise("sample", finished)
    assert ended.status == 0, ended
    assert ended.out.count("sort ") >= 3


@pytest.mark.nightly
@pytest.mark.parametrize(
    ("name", "prompt", "shown"),
    [
        ("language", "ball 4 swap 1-2 3-5 4-3 5-1 3-1 3-2 ?", "ball "),
        ("guess_the_number", "between 1 and 15 ?", "between "),
        ("diffusion", "the digit 3", ".png"),
        ("restoration", None, ".png"),
        ("selection", None, "\n"),
    ],
)
def test_shipped_experiments_answer_without_what_only_training_needs(
    groupwise, monkeypatch: pytest.MonkeyPatch, name: str, prompt: str | None, shown: str
):
    from groupwise import load_experiment
    from groupwise.reward import Rewards

    stages = [f"stages.{stage.name}.num_steps=1" for stage in load_experiment(name).stages] or ["train.num_steps=1"]
    small = ["domain.source.num_train=256", "domain.evaluation.tables=false"] if name == "selection" else []
    trained = groupwise(
        "train", name, *stages, *small, "controls=null", "track.console=none", "checkpoint.every=100", "--out", "run"
    )
    assert trained.status == 0, trained
    opened: list[int] = []
    before = Rewards.__init__
    monkeypatch.setattr(
        Rewards, "__init__", lambda self, rewards: (opened.append(len(rewards)), before(self, rewards))[1]
    )
    for asked in ([], [] if prompt is None else ["--prompt", prompt]):
        ended = groupwise("sample", "run", *asked)
        assert (ended.status, ended.err) == (0, ""), ended
        assert shown in ended.out
    assert set(opened) == {0}


def test_a_question_needs_no_data(groupwise, finished: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    from groupwise.domain.language.source import Sorting

    def read(*_: object) -> None:
        raise AssertionError("the data were read")

    monkeypatch.setattr(Sorting, "rows", read)
    ended = groupwise("sample", finished, "--prompt", "sort 3 1 2 ?")
    assert (ended.status, ended.err) == (0, ""), ended


@pytest.fixture
def calling(tmp_path: Path) -> Path:
    """A folder with a model that was taught to call a tool, the tool, and an experiment."""
    model, tokenizer = calling_model()
    model.save_pretrained(tmp_path / "model")
    tokenizer.save_pretrained(tmp_path / "model")
    (tmp_path / "adding_tools.py").write_text(
        'def add(a: int, b: int) -> int:\n    """Multiplies.\n\n    Args:\n        a: one.\n        b: two.\n    """\n'
        "    return a * b\n"
    )
    (tmp_path / "calling.toml").write_text(f"""
        name = "calling"
        [domain]
        kind = "language"
        model = {{ kind = "pretrained", path = "{tmp_path / "model"}" }}
        data.source = {{ kind = "texts", prompts = ["1 plus 3 ?", "2 plus 4 ?"] }}
        chat.use = "always"
        sampling.max_new_tokens = 24
        environment = {{ kind = "chat_tools", tools = ["adding_tools:add"] }}
        rewards.length = {{ kind = "length", target = 3 }}
        [train]
        num_steps = 1
    """)
    return tmp_path


@pytest.mark.slow
def test_a_typed_question_is_answered_with_the_tools(groupwise, calling: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(calling))
    words = ["sample", calling / "model", "--experiment", calling / "calling.toml", "--prompt", "2 plus 3 ?"]
    assert "[tool] 6 " in groupwise(*words, "--run-code").out
    raw = groupwise(*words, "--raw")
    assert raw.status == 0, raw
    assert "[tool]" not in raw.out


def test_a_model_folder_with_a_short_context_answers(groupwise, calling: Path) -> None:
    config = calling / "model" / "config.json"
    config.write_text(json.dumps({**json.loads(config.read_text()), "max_position_embeddings": 64}))
    ended = groupwise("sample", calling / "model", "--prompt", "2 plus 3 ?")
    assert ended.status == 0, ended
    assert ended.out.startswith("2 plus 3 ?"), ended


def test_tools_that_no_file_describes_are_left_out_of_an_answer() -> None:
    def settings(tool: str) -> LanguageConfig:
        return LanguageConfig.model_validate(
            {
                "model": {"kind": "pretrained", "path": "model"},
                "data": {"source": {"kind": "texts", "prompts": ("1 plus 3 ?", "2 plus 4 ?")}},
                "environment": {"kind": "chat_tools", "tools": (tool,)},
                "rewards": {"length": {"kind": "length", "target": 3}},
            }
        )

    assert settings("groupwise.objects:tools_0").to_sample(data=False).environment is None
    to_sample = settings("my_tools:add").to_sample(data=False)
    assert to_sample.environment is not None
    assert to_sample.asked_raw().environment is None


def test_a_domain_whose_module_is_absent_is_named_by_its_key(groupwise, tmp_path: Path) -> None:
    (tmp_path / "away.toml").write_text('[domain]\nkind = "callable"\npath = "absent_module:Walk"\n')
    (tmp_path / "model").mkdir()
    ended = groupwise("sample", tmp_path / "model", "--experiment", tmp_path / "away.toml")
    assert "error: domain.path = 'absent_module:Walk': the module 'absent_module' cannot be imported" in ended.err


# A member in words; a domain that describes nothing itself still shows what it chose.


REACH = Path(__file__).parents[1] / "domain/callable"


@pytest.fixture
def trained(groupwise, tmp_path: Path) -> Path:
    """A run of a domain outside the package, which writes no `describe` and no `asked`."""
    for name in ("reach.py", "reach.toml"):
        (tmp_path / name).write_text((REACH / name).read_text())
    ended = groupwise("train", "reach.toml", "--out", "run", "train.num_steps=1")
    assert ended.status == 0, ended.err
    return tmp_path


@pytest.mark.slow
def test_what_a_policy_chose_is_shown_without_a_method_of_the_authors(groupwise, trained: Path) -> None:
    shown = groupwise("sample", "run", "--run-code").out
    assert "actions [" in shown
    assert "{" not in shown
    checked = groupwise("check", "reach.toml").out
    assert "end [" in checked
    # The members of a group share their goal, which tells none from another.
    assert "goal [" not in checked


def test_a_training_prompt_is_asked_by_its_key_and_a_text_that_makes_none_is_refused(groupwise, trained: Path) -> None:
    key = groupwise("sample", "run", "--run-code").out.splitlines()[0]
    assert groupwise("sample", "run", "--run-code", "--prompt", key).out.splitlines()[0] == key
    refused = groupwise("sample", "run", "--run-code", "--prompt", "hello")
    assert refused.status == 2
    assert "--prompt 'hello': a prompt of Reach is no text alone" in refused.err
    assert repr(key) in refused.err


def test_a_policy_without_conversations_says_so_before_the_first_line(groupwise, trained: Path) -> None:
    refused = groupwise("sample", "run", "--run-code", "--chat")
    assert refused.status == 2
    assert "--chat: this model holds no conversations" in refused.err
