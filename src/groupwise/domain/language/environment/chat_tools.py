"""Tools by the chat template: functions that the policy calls by JSON, with as many arguments as they have."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property, partial
from typing import Any, Literal, Self, final

from pydantic import field_validator

from groupwise.config import ConfigError, InModule, user_callable
from groupwise.config.numbers import Length, PerStep, Positive, Seconds
from groupwise.domain.language.environment.base import EnvironmentKind, Step, Weight
from groupwise.domain.language.environment.tool_calls import CallFormat, ToolCall, format_of, read_calls
from groupwise.domain.language.environment.tool_runner import ToolRunner
from groupwise.domain.language.environment.tool_signature import ToolSignature

CALLS, FAILED_CALLS = "tools/call_frequency", "tools/failed_calls"


@final
class ChatTools(EnvironmentKind):
    """Python functions that the chat template shows as tools; the policy's calls are read in its model's format, and
    results go back as messages of the role `tool`.

    A call that is no JSON, an unknown tool, a wrong argument, a tool that raises or takes too long is answered by one
    line `error: ...`, and the run goes on. A turn without a call ends the conversation.

    Example:
        >>> path = "groupwise.domain.language.environment.calculator:calculate"
        >>> conversation = ChatTools(tools=(path,), parser="hermes").open()
        >>> call = '<tool_call>{"name": "calculate", "arguments": {"expression": "12 * 7"}}</tool_call>'
        >>> conversation.step(call).messages[0]["content"]
        '84'
        >>> conversation.step("so 84").done
        True
    """

    kind: Literal["chat_tools"] = "chat_tools"
    tools: tuple[InModule, ...]
    """`package.module:function` of each tool. Its docstring describes it, with a line under `Args:` for every
    parameter; every parameter has a type hint. An asynchronous function is awaited.
    """
    parser: Literal["auto"] | CallFormat = "auto"
    """The format of the calls; `auto` tells it by the chat template."""
    max_turns: Length = 8
    """Turns of the policy; calls of the last one are not made."""
    max_calls: PerStep = 8
    """Calls in one turn; further ones are not made, and the last result says so."""
    seconds: Seconds = 10.0
    """Deadline of one call."""
    max_characters: Positive = 2000
    """Longest result; the rest is cut off."""

    weight: Weight = 0.0
    """Of a reward of its own, which tools do not earn."""

    reads_special_tokens = True
    answers_any_prompt = True
    needs_template = True
    counted = (CALLS, FAILED_CALLS)

    @field_validator("tools")
    @classmethod
    def _some(cls, tools: tuple[InModule, ...]) -> tuple[InModule, ...]:
        if not tools:
            raise ValueError('tools is empty; name at least one, tools = ["my_tools:search"]')
        return tools

    @cached_property
    def signatures(self) -> Mapping[str, ToolSignature]:
        """The tools by name.

        Raises:
            ConfigError: a function cannot be loaded or described, or two have one name.
        """
        signatures: dict[str, ToolSignature] = {}
        for position, path in enumerate(self.tools):
            key = f"domain.environment.tools[{position}]"
            signature = ToolSignature(user_callable(path, key), f"{key} = {str(path)!r}")
            if signature.name in signatures:
                raise ConfigError(f"{key} = {str(path)!r}: two tools are called {signature.name}; rename one")
            signatures[signature.name] = signature
        return signatures

    @property
    def marks_calls(self) -> bool:
        return self.parser == "hermes"

    @cached_property
    def runner(self) -> ToolRunner:
        """The caller of the tools, one for all members."""
        return ToolRunner(self.seconds, self.max_characters)

    @property
    def schemas(self) -> tuple[dict[str, Any], ...]:
        return tuple(signature.schema for signature in self.signatures.values())

    def for_template(self, template: str) -> Self:
        if self.parser != "auto":
            return self
        call_format = format_of(template)
        if call_format is None:
            raise ConfigError(
                "domain.environment.parser = 'auto': the chat template writes calls in none of the formats that are"
                " read; write parser = 'hermes' (<tool_call>{...}</tool_call>), 'llama' ({\"name\": ...,"
                " \"parameters\": ...}) or 'mistral' ([TOOL_CALLS][...]), if the model can"
            )
        return self.model_copy(update={"parser": call_format})

    def open(self) -> _Conversation:
        return _Conversation(self)


@final
class _Conversation:
    def __init__(self, config: ChatTools) -> None:
        self.config, self.turns = config, 0

    def reset(self, columns: Mapping[str, Any]) -> str:
        self.turns = 0
        return ""

    def step(self, action: str) -> Step:
        config = self.config
        assert config.parser != "auto", "for_template has not been called"
        self.turns += 1
        content, calls = read_calls(action, config.parser)
        if not calls:
            return Step(done=True)
        written: dict[str, Any] = {"role": "assistant", "content": content}
        readable = [_record(call, self._id(place)) for place, call in enumerate(calls[: config.max_calls]) if call.name]
        if readable:
            written["tool_calls"] = readable
        if self.turns >= config.max_turns:
            return Step(done=True, action=written)
        messages: list[dict[str, Any]] = []
        num_failed = len(calls[config.max_calls :])
        for place, call in enumerate(calls[: config.max_calls]):
            text, succeeded = self._answer(call)
            num_failed += not succeeded
            # A template writes the name as it is, so it is one of the tools' and not the policy's text.
            name = call.name if call.name in config.signatures else "unknown"
            messages.append({"role": "tool", "name": name, "content": text, "tool_call_id": self._id(place)})
        if num_left := len(calls[config.max_calls :]):
            # The last result says so, because a template may write no result without a call of its own.
            reason = f"a turn may hold {config.max_calls} calls; {num_left} were left out"
            messages[-1]["content"] += f"; {config.runner.error(reason)}"
        counts = {CALLS: float(len(calls)), FAILED_CALLS: float(num_failed)}
        return Step(messages=messages, action=written, counts=counts)

    def _answer(self, call: ToolCall) -> tuple[str, bool]:
        signatures, runner = self.config.signatures, self.config.runner
        if call.problem:
            return runner.error(call.problem), False
        if call.name not in signatures:
            return runner.error(f"no tool {call.name[:60]!r}; there are {', '.join(signatures)}"), False
        arguments, problem = signatures[call.name].read(call.arguments)
        if problem:
            return runner.error(problem), False
        return runner.call(call.name, partial(signatures[call.name].function, **arguments))

    def _id(self, place: int) -> str:
        # Mistral's templates insist on nine letters and digits.
        return f"{self.turns % 10_000:04d}{place % 100_000:05d}"


def _record(call: ToolCall, call_id: str) -> dict[str, Any]:
    return {"type": "function", "id": call_id, "function": {"name": call.name, "arguments": call.arguments}}
