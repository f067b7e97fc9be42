from __future__ import annotations

import pytest

from groupwise.config import ConfigError
from groupwise.domain.language.environment import CallableEnvironment, Step


class Echo:
    def __init__(self, times: int = 2) -> None:
        self.left = times

    def reset(self, columns):
        return columns["prompt"]

    def step(self, action):
        self.left -= 1
        return action, 1.0, self.left == 0


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
