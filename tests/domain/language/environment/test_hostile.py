"""Every environment, and every judge that the shipped experiments bring, on every hostile text: answered or judged,
never raised on.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import get_args

import pytest

from groupwise.domain.language.environment import (
    CallableEnvironment,
    ChatTools,
    EnvironmentConfig,
    GuessTheNumber,
    Tools,
    calculate,
)
from groupwise.domain.language.source.toys import patient, worked
from groupwise.domain.language.writer.countdown import keeps_the_rules
from groupwise.testing.reward import TEXTS

OPEN = {
    "guess_the_number": GuessTheNumber(num_guesses=3),
    "tools": Tools(),
    "chat_tools": ChatTools(
        tools=("groupwise.domain.language.environment:calculate",), parser="hermes", max_turns=10_000
    ),
    "callable": CallableEnvironment(path="groupwise.domain.language.environment:example"),
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


ONE_LONG = "10 MB of one letter"
LONG = {name: text for name, text in TEXTS.items() if name.startswith("10 MB") and name != ONE_LONG}
SIZES = [
    pytest.param({name: text for name, text in TEXTS.items() if name not in LONG}, id="short"),
    pytest.param(LONG, id="10 MB", marks=pytest.mark.slow),
]
"""Of the texts of 10 MB one is tried at once."""


@pytest.fixture(autouse=True)
def untouched(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]):
    monkeypatch.chdir(tmp_path)
    yield
    assert list(tmp_path.iterdir()) == []
    assert capfd.readouterr() == ("", "")


def test_every_environment_is_tried_below() -> None:
    assert set(OPEN) == {model.model_fields["kind"].default for model in get_args(get_args(EnvironmentConfig)[0])}


def failures(sound: Callable[[str], bool], texts: Mapping[str, str]) -> list[str]:
    """The names of the texts on which it raised or was not sound."""
    found = []
    for name, text in texts.items():
        try:
            if not sound(text):
                found.append(name)
        except Exception as error:
            found.append(f"{name}: {error!r:.200}")
    return found


@pytest.mark.parametrize("texts", SIZES)
@pytest.mark.parametrize("kind", OPEN)
def test_a_hostile_turn_is_answered(kind: str, texts: dict[str, str]) -> None:
    def sound(text: str) -> bool:
        for wrapped in WRAPPED:
            game = OPEN[kind].open()
            game.reset({"secret": 6})
            step = game.step(wrapped.replace("{}", text))
            told = [message["content"] for message in step.messages]
            # A tokenizer takes nothing that cannot be encoded.
            if step.reward or len(step.text) >= 500 or any("\n" in each or not each.encode() for each in told):
                return False
        return True

    assert failures(sound, texts) == []


@pytest.mark.parametrize("texts", SIZES)
def test_a_hostile_expression_is_an_error_or_a_number(texts: dict[str, str]) -> None:
    def sound(text: str) -> bool:
        answer = calculate(text)
        return len(answer) < 200 and (answer.startswith("error: ") or float(answer) == float(answer))

    assert failures(sound, texts) == []


@pytest.mark.parametrize("texts", SIZES)
def test_judges_of_shipped_experiments(texts: dict[str, str]) -> None:
    def sound(text: str) -> bool:
        turn = [{"role": "assistant", "content": text}]
        given = [keeps_the_rules([text], [{"numbers": [3, 19, 77]}]), patient([turn], [1], [15], [6])]
        return [*given, worked([text], steps=[[1, 2]])] == [[0.0]] * 3

    assert failures(sound, texts) == []
