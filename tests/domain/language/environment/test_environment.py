"""Environments: a calculator, a game, text tools, chat tools, and a class of your own."""

from __future__ import annotations

import asyncio
import enum
import json
import threading
from typing import Literal

import pytest
from tests.experiment.tiny import TINY

from groupwise import load_experiment, train
from groupwise.config import ConfigError
from groupwise.domain.language.environment import CallableEnvironment, GuessTheNumber, Step, Tools, calculate
from groupwise.domain.language.tools import ToolCall, ToolRunner, ToolSignature, format_of, read_calls


class Echo:
    def __init__(self, times: int = 2) -> None:
        self.left = times

    def reset(self, columns):
        return columns["prompt"]

    def step(self, action):
        self.left -= 1
        return action, 1.0, self.left == 0


@pytest.mark.parametrize(
    ("expression", "value"),
    [
        ("2 + 3 * 4", "14"),
        ("-(2 - 5) ** 2", "-9"),
        ("0.1 + 0.2", "0.3"),
        ("7 / 2", "3.5"),
        ("2 / 3", "0.666667"),
        ("7 // 2", "3"),
        ("7 % 4", "3"),
        ("2 ^ 10", "1024"),
        ("10 ** -2", "0.01"),
        ("1 / 0", "error: division by zero"),
        ("7 // 0", "error: division by zero"),
        ("2 +", "error: no expression"),
        ("", "error: no expression"),
        ("0 ** -1", "error: division by zero"),
        ("__import__('os')", "error: only numbers, + - * / // % ** and brackets"),
        ("True + 1", "error: only numbers, + - * / // % ** and brackets"),
        ("9 ** 9 ** 9", "error: exponents are whole numbers, and results at most 60 digits"),
        ("2 ** 0.5", "error: exponents are whole numbers, and results at most 60 digits"),
        ("(" * 90 + "1" + ")" * 90, "1"),
        ("1" * 201, "error: longer than 200 characters"),
    ],
)
def test_values_and_refusals(expression, value):
    assert calculate(expression) == value


# Callable.


def test_a_class_of_ones_own_is_built_once_a_member():
    kind = CallableEnvironment(path=f"{__name__}:Echo", arguments={"times": 2})
    first, second = kind.open(), kind.open()
    assert first.reset({"prompt": "say"}) == "say"
    assert first.step("a") == Step("a", 1.0, False)
    assert first.step("b") == Step("b", 1.0, True)
    assert second.step("c") == Step("c", 1.0, False)


def test_an_object_that_cannot_talk_is_refused():
    with pytest.raises(
        ConfigError, match=r"makes a dict; it has to make an object with reset\(columns\) and step\(text\)"
    ):
        CallableEnvironment(path="builtins:dict").open()


# Guess the number.


def test_a_game_of_four_turns_that_is_won():
    game = GuessTheNumber(num_guesses=4).open()
    assert game.reset({"secret": 7}) == ""
    assert game.step("3") == Step("higher")
    assert game.step("seven") == Step("number ?")
    assert game.step("9") == Step("lower")
    assert game.step("7") == Step(reward=1.0, done=True)


# Tools.


def shout(text: str) -> str:
    return text.upper() * 100


def fail(text: str) -> str:
    raise RuntimeError("broken")


def test_calls_errors_and_the_end():
    tools = Tools(max_calls=4).open()
    assert tools.step("<tool>calculator: 2 + 2</tool>").text == "<result>4</result>"
    assert tools.step("so <tool> 3 * 3 </tool>").text == "<result>9</result>"
    assert tools.step("<tool>clock: now</tool>").text == "<result>error: no tool 'clock'; there are calculator</result>"
    assert tools.step("<tool>1 / 0</tool>").text == "<result>error: division by zero</result>"
    assert tools.step("<tool>1 + 1</tool>").done, "the fifth call is one too many"
    assert Tools().open().step("the answer is 4").done
    assert Tools().open().step("<tool>not closed").done


def test_a_tool_that_raises_is_answered_and_a_long_result_is_cut(monkeypatch):
    here = "tests.domain.language.environment.test_environment"
    tools = Tools(tools={"shout": f"{here}:shout", "fail": f"{here}:fail"}, max_characters=10).open()
    assert tools.step("<tool>shout: ab</tool>").text == "<result>ABABABABAB</result>"
    assert (
        Tools(tools={"fail": f"{here}:fail"}).open().step("<tool>x</tool>").text
        == "<result>error: RuntimeError: broken</result>"
    )
    assert tools.step("<tool>ab</tool>").text.startswith("<result>error: no")


def one(prompts, completions, **columns):
    return [1.0] * len(prompts)


@pytest.mark.slow
def test_tools_that_earn_nothing_leave_the_reward_as_it_is(tmp_path):
    """A reward that is missing for every member would be made up for by the others, which then count twice."""
    (tmp_path / "tiny.toml").write_text(TINY, encoding="utf-8")
    reward = "domain.rewards.one"
    changes = [f"{reward}.kind=callable", f"{reward}.path=tests.domain.language.environment.test_environment:one"]
    experiment = load_experiment(
        tmp_path / "tiny.toml",
        ["controls=null", "domain.environment.kind=tools", "domain.rewards.correct=null", *changes],
    )
    run = train(experiment, out=tmp_path / "run").folder
    (records,) = [[json.loads(line) for line in path.open()] for path in run.rollouts.glob("step-4.jsonl")]
    assert {record["reward"] for record in records} == {1.0}


# Tool calls.


ADD = {"name": "add", "arguments": {"a": 2, "b": [3]}}
FORMS = {
    "hermes": lambda calls: "".join(f"<tool_call>\n{json.dumps(call)}\n</tool_call>\n" for call in calls),
    "llama": lambda calls: "; ".join(
        json.dumps({"name": call["name"], "parameters": call["arguments"]}) for call in calls
    ),
    "mistral": lambda calls: "[TOOL_CALLS]" + json.dumps(calls),
}


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("num_calls", [1, 2, 3])
def test_calls_are_read_as_they_were_written(form, num_calls):
    assert read_calls(FORMS[form]([ADD] * num_calls), form) == (
        "",
        [ToolCall(ADD["name"], ADD["arguments"])] * num_calls,
    )


@pytest.mark.parametrize("form", FORMS)
def test_a_thought_holds_no_call_and_an_answer_is_none(form):
    thought = f"<think>{FORMS[form]([ADD])}</think>"
    assert read_calls(thought + "4", form) == (thought + "4", [])
    assert len(read_calls(thought + FORMS[form]([ADD]), form)[1]) == 1
    assert read_calls('{"answer": 4}', form) == ('{"answer": 4}', [])


@pytest.mark.parametrize(
    ("form", "text", "problem"),
    [
        ("hermes", "<tool_call>add(2)</tool_call>", "the call is no JSON: Expecting value at character 1"),
        ("hermes", '<tool_call>{"name": "add"}', "the call is not closed by </tool_call>"),
        ("hermes", '<tool_call>["add"]</tool_call>', 'a call is an object {"name": "...", "arguments": {...}}'),
        ("hermes", '<tool_call>{"name": 4}</tool_call>', 'a call is an object {"name": "...", "arguments": {...}}'),
        ("hermes", '<tool_call>{"name": "a", "arguments": 4}</tool_call>', "arguments is no object of arguments"),
        ("hermes", '<tool_call>{"name": "a", "arguments": {"a": NaN}}</tool_call>', "NaN is no JSON number"),
        ("hermes", "<tool_call></tool_call>", "the call is no JSON: Expecting value at character 1"),
        ("hermes", f"<tool_call>{'[' * 99_000}</tool_call>", "it is nested too deeply"),
        ("hermes", f"<tool_call>{'9' * 5000}</tool_call>", "the call is no JSON: Exceeds the limit"),
        ("hermes", f"<tool_call>{' ' * 100_001}</tool_call>", "the call is longer than 100000 characters"),
        ("llama", '<|python_tag|>search.call(query="x")', "the call is no JSON: Expecting value at character 1"),
        ("llama", '{"name": "add", "parameters": {"a": 2}', "the call is no JSON: Expecting ',' delimiter"),
        ("mistral", "[TOOL_CALLS][]", "the list of calls is empty"),
        ("mistral", "[TOOL_CALLS]", "the call is no JSON: Expecting value at character 1"),
    ],
)
def test_a_call_that_cannot_be_read_says_why_in_one_line(form, text, problem):
    (call,) = read_calls(text, form)[1]
    assert problem in call.problem
    assert "\n" not in call.problem


def test_the_template_tells_the_format():
    assert format_of('{{ "[TOOL_CALLS]" }}') == "mistral"
    assert format_of('role ipython {"name": ..., "parameters": ...}') == "llama"
    assert format_of("[TOOL_CALLS] [ARGS]") is None
    assert format_of("{{ messages }}") is None


# Tool runner.


@pytest.fixture
def release():
    event = threading.Event()
    yield event
    event.set()


def test_results_of_any_kind_become_texts():
    runner = ToolRunner(seconds=10.0, max_characters=12)

    async def search():
        await asyncio.sleep(0)
        return ["ä"]

    assert runner.call("text", lambda: "as it is") == ("as it is", True)
    assert runner.call("none", lambda: None) == ("null", True)
    assert runner.call("search", search) == ('["ä"]', True)
    assert runner.call("object", lambda: {1, 2}) == ('"{1, 2}"', True)
    assert runner.call("long", lambda: "x" * 100) == ("x" * 12, True)
    assert runner.call("half", lambda: "a\ud800") == ("a?", True)


def test_a_tool_that_hangs_is_left_and_called_no_more_once_too_many_calls_hang(release):
    runner = ToolRunner(seconds=0.01, max_characters=100)
    for _ in range(16):
        assert runner.call("wait", release.wait) == ("error: wait took longer than 0.01 seconds", False)
    assert runner.call("wait", release.wait) == ("error: wait is busy with 16 earlier calls that have not ended", False)
    runner.seconds = 10.0
    assert runner.call("clock", lambda: "12:00") == ("12:00", True), "one tool that hangs keeps no other from its work"
    release.set()
    for thread in [thread for thread in threading.enumerate() if thread.name == "reward-tool-wait"]:
        thread.join(10.0)
    assert runner.call("wait", release.wait) == ("true", True)


# Tool signature.


class Unit(enum.Enum):
    METRE = "m"
    FOOT = "ft"


def measure(
    length: float,
    unit: Unit,
    axes: tuple[int, int] = (0, 1),
    mode: Literal["up", "down"] = "up",
    note: str | None = None,
):
    """Measures a length.

    Args:
        length: of the thing.
        unit: of the length.
        axes: to measure along.
        mode: of rounding.
        note: for people.
    """
    return length, unit, axes, mode, note


def test_arguments_become_what_the_type_hints_say():
    read = ToolSignature(measure, "tools").read
    assert read({"length": 2, "unit": "ft", "axes": [1, 2]}) == ({"length": 2.0, "unit": Unit.FOOT, "axes": (1, 2)}, "")
    assert read({"length": 2.5, "unit": "m", "note": None, "mode": "down"})[1] == ""


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        ({"length": "2", "unit": "m"}, "length: Input should be a valid number"),
        ({"length": 2, "unit": "mile"}, "unit: Input should be 'm' or 'ft'"),
        ({"length": 2, "unit": "m", "mode": "off"}, "mode: Input should be 'up' or 'down'"),
        ({"length": 2, "unit": "m", "axes": [1.5, 2]}, "axes: Input should be a valid integer"),
        ({"length": 2}, "measure needs the argument unit"),
        ({"length": 2, "unit": "m", "self": 1}, "measure has no argument self; it has length, unit, axes, mode, note"),
    ],
)
def test_a_wrong_argument_is_named(arguments, problem):
    values, reason = ToolSignature(measure, "tools").read(arguments)
    assert values == {}
    assert reason.startswith(problem)


def undocumented(a: int):
    return a


def without_hint(a):
    """Does.

    Args:
        a: of it.
    """


def any_number(*numbers: int, **more: int):
    """Does.

    Args:
        numbers: some.
        more: others.
    """


@pytest.mark.parametrize(
    ("function", "reason"),
    [
        (undocumented, "no docstring!; write a docstring, and for every parameter a type hint"),
        (without_hint, "Argument a is missing a type hint"),
        (any_number, r"a call gives arguments by name, and \*numbers: .*, \*\*more: .* cannot be named"),
        (min, "cannot be described as a tool"),
    ],
)
def test_a_function_that_cannot_be_described_is_refused(function, reason):
    with pytest.raises(ConfigError, match=rf"tools\[0\] = 'm:f': .*{reason}"):
        ToolSignature(function, "tools[0] = 'm:f'")
