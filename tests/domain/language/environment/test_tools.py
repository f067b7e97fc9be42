from __future__ import annotations

import json

import pytest
from pydantic import ValidationError
from tests.experiment.tiny import TINY

from groupwise import load_experiment, train
from groupwise.domain.language.environment import Tools


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
    here = "tests.domain.language.environment.test_tools"
    tools = Tools(tools={"shout": f"{here}:shout", "fail": f"{here}:fail"}, max_characters=10).open()
    assert tools.step("<tool>shout: ab</tool>").text == "<result>ABABABABAB</result>"
    assert (
        Tools(tools={"fail": f"{here}:fail"}).open().step("<tool>x</tool>").text
        == "<result>error: RuntimeError: broken</result>"
    )
    assert tools.step("<tool>ab</tool>").text.startswith("<result>error: no")


def test_a_reply_without_its_place_is_refused():
    with pytest.raises(ValidationError, match="reply must contain"):
        Tools(reply="ok")


def one(prompts, completions, **columns):
    return [1.0] * len(prompts)


def test_tools_that_earn_nothing_leave_the_reward_as_it_is(tmp_path):
    """A reward that is missing for every member would be made up for by the others, which then count twice."""
    (tmp_path / "tiny.toml").write_text(TINY, encoding="utf-8")
    reward = "domain.rewards.one"
    changes = [f"{reward}.kind=callable", f"{reward}.path=tests.domain.language.environment.test_tools:one"]
    experiment = load_experiment(
        tmp_path / "tiny.toml",
        ["controls=null", "domain.environment.kind=tools", "domain.rewards.correct=null", *changes],
    )
    run = train(experiment, out=tmp_path / "run").folder
    (records,) = [[json.loads(line) for line in path.open()] for path in run.rollouts.glob("step-4.jsonl")]
    assert {record["reward"] for record in records} == {1.0}
