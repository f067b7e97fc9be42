"""Every environment, and every judge that the shipped experiments bring, on every hostile text: answered or judged,
never raised on.
"""

from __future__ import annotations

from pathlib import Path
from typing import get_args

import pytest

from groupwise.domain.language.environment import (
    CallableEnvironment,
    ChatTools,
    EnvironmentConfig,
    GuessTheNumber,
    Tools,
)
from groupwise.domain.language.environment.calculator import calculate
from groupwise.domain.language.source.cups import worked
from groupwise.domain.language.source.hidden_number import patient
from groupwise.domain.language.writer.countdown import keeps_the_rules
from groupwise.testing.hostile import TEXTS

OPEN = {
    "guess_the_number": GuessTheNumber(num_guesses=3),
    "tools": Tools(),
    "chat_tools": ChatTools(
        tools=("groupwise.domain.language.environment.calculator:calculate",), parser="hermes", max_turns=10_000
    ),
    "callable": CallableEnvironment(path="groupwise.domain.language.environment.callable:example"),
}
_CALL = '<tool_call>{"name": "calculate", "arguments": {"expression": "{}"}}</tool_call>'
WRAPPED = (
    "{}",
    "<tool>{}</tool>",
    "<tool>calculator: {}</tool>",
    "<tool>{}: 1</tool>",
    "<tool_call>{}</tool_call>",
    _CALL,
)


@pytest.fixture(autouse=True)
def untouched(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]):
    monkeypatch.chdir(tmp_path)
    yield
    assert list(tmp_path.iterdir()) == []
    assert capfd.readouterr() == ("", "")


def test_every_environment_is_tried_below() -> None:
    assert set(OPEN) == {model.model_fields["kind"].default for model in get_args(get_args(EnvironmentConfig)[0])}


@pytest.mark.parametrize("name", TEXTS)
@pytest.mark.parametrize("kind", OPEN)
def test_a_hostile_turn_is_answered(kind: str, name: str) -> None:
    for wrapped in WRAPPED:
        game = OPEN[kind].open()
        game.reset({"secret": 6})
        step = game.step(wrapped.replace("{}", TEXTS[name]))
        assert len(step.text) < 500
        assert all("\n" not in message["content"] for message in step.messages)
        # A tokenizer takes nothing else.
        assert all(message["content"].encode() for message in step.messages)
        assert not step.reward


@pytest.mark.parametrize("name", TEXTS)
def test_a_hostile_expression_is_an_error_or_a_number(name: str) -> None:
    answer = calculate(TEXTS[name])
    assert answer.startswith("error: ") or float(answer) == float(answer)
    assert len(answer) < 200


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("text", ["1if 2else 3", "0x1for x in 2", "1 is 1", '"\\d"', "1()", "'a'[1, 2]"])
def test_what_python_warns_of_is_not_given_to_it(text: str) -> None:
    assert calculate(text) == "error: only numbers, + - * / // % ** and brackets"


@pytest.mark.parametrize("name", TEXTS)
def test_judges_of_shipped_experiments(name: str) -> None:
    text = TEXTS[name]
    assert keeps_the_rules([text], [{"numbers": [3, 19, 77]}]) == [0.0]
    assert patient([[{"role": "assistant", "content": text}]], [1], [15], [6]) == [0.0]
    assert worked([text], steps=[[1, 2]]) == [0.0]
