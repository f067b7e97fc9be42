from __future__ import annotations

import pytest
from pydantic import ValidationError

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
