"""Tools: the policy writes a call between two marks, the environment answers with the result, and the
policy goes on.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Literal, final

from pydantic import Field, model_validator

from groupwise.config import ImportPath, InModule, user_callable
from groupwise.config.numbers import Length, Positive
from groupwise.domain.language.environment.base import EnvironmentKind, Step, Weight

CALCULATOR = ImportPath("groupwise.domain.language.environment.calculator:calculate")


@final
class Tools(EnvironmentKind):
    """`<tool>calculator: 12 * 7</tool>` is answered by `<result>84</result>`; a turn without a call ends the
    conversation.

    A tool is a function of one text that returns one. What it raises, an unknown name or a call above the limit is
    answered by `error: ...`, so that the policy can learn from it. With one tool its name may be left out.

    Example:
        >>> tools = Tools().open()
        >>> tools.reset({})
        ''
        >>> tools.step("that is <tool>calculator: 12 * 7</tool>").text
        '<result>84</result>'
        >>> tools.step("so 84").done
        True
    """

    kind: Literal["tools"] = "tools"
    tools: Mapping[str, InModule] = Field(default_factory=lambda: {"calculator": CALCULATOR})
    """Name -> `package.module:function`."""
    opening: str = "<tool>"
    """The beginning of a call."""
    closing: str = "</tool>"
    """The end of a call; it ends the turn."""
    reply: str = "<result>{result}</result>"
    """The answer; `{result}` stands for what the tool returned."""
    max_calls: Length = 4
    """Calls a member may make; the next one ends the conversation."""
    max_characters: Positive = 400
    """Longest result; the rest is cut off."""

    weight: Weight = 0.0
    """Of a reward of its own, which tools do not earn."""

    answers_any_prompt = True

    @model_validator(mode="after")
    def _usable(self) -> Tools:
        if not self.tools:
            raise ValueError("tools is empty; name at least one, such as calculator = " + repr(CALCULATOR))
        if not self.opening or not self.closing or "{result}" not in self.reply:
            raise ValueError("opening and closing must not be empty, and reply must contain {result}")
        return self

    @property
    def stop(self) -> tuple[str, ...]:
        return (self.closing,)

    def open(self) -> _Tools:
        functions = {
            name: user_callable(path, f"domain.environment.tools.{name}", write="a function of one text")
            for name, path in self.tools.items()
        }
        return _Tools(self, functions)


@final
class _Tools:
    def __init__(self, config: Tools, functions: Mapping[str, Callable[[str], Any]]) -> None:
        self.config, self.functions, self.calls = config, functions, 0

    def reset(self, columns: Mapping[str, Any]) -> str:
        self.calls = 0
        return ""

    def step(self, action: str) -> Step:
        config = self.config
        _, opening, call = action.rpartition(config.opening)
        if not opening or not call.rstrip().endswith(config.closing):
            return Step(done=True)
        self.calls += 1
        if self.calls > config.max_calls:
            return Step(done=True)
        result = self._result(call.rstrip().removesuffix(config.closing).strip())
        return Step(config.reply.replace("{result}", result[: config.max_characters]))

    def _result(self, call: str) -> str:
        name, separator, argument = call.partition(":")
        if not separator or name.strip() not in self.functions:
            if len(self.functions) > 1 or (separator and name.strip().isidentifier()):
                return f"error: no tool {name.strip()!r}; there are {', '.join(sorted(self.functions))}"
            name, argument = next(iter(self.functions)), call
        try:
            return str(self.functions[name.strip()](argument.strip()))
        except Exception as error:  # a tool's failure is the policy's to read, not the run's to die of
            return f"error: {type(error).__name__}: {error}"
