"""The calls of tools in a turn, as model families write them: Qwen and Hermes, Llama 3, Mistral."""

import inspect
import json
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Literal, get_type_hints

from pydantic import TypeAdapter, ValidationError

from groupwise.config import ConfigError
from groupwise.reward.scoring.threads import Job

CallFormat = Literal["hermes", "llama", "mistral"]
"""`hermes`: `<tool_call>{"name": ..., "arguments": {...}}</tool_call>` (Qwen 2.5 and 3, Hermes, SmolLM3); `llama`:
`{"name": ..., "parameters": {...}}` as the whole turn, or after `<|python_tag|>`, several divided by `;`; `mistral`:
`[TOOL_CALLS][{"name": ..., "arguments": {...}}]`.
"""

_MOST_CHARACTERS = 100_000
THOUGHT_OPENS, THOUGHT_CLOSES = "<think>", "</think>"
"""The marks around the text of a thought."""
_FOREIGN_MARKS = ("<function=", "<arg_key>", "[ARGS]")
"""Marks of templates whose calls are not JSON objects."""


@dataclass(frozen=True)
class ToolCall:
    """One call that a policy wrote.

    Args:
        name: the name of the tool; empty where the call cannot be read.
        arguments: by name, as JSON gave them.
        problem: one line that explains why the call cannot be read; empty where it can.
    """

    name: str = ""
    arguments: dict[str, Any] = field(default_factory=dict)
    problem: str = ""


def format_of(template: str) -> CallFormat | None:
    """Returns the format in which the models of a chat template write calls; None of a template of another format.

    Example:
        >>> format_of("... <tool_call> ..."), format_of("... <tool_call><function=x> ..."), format_of("plain")
        ('hermes', None, None)
    """
    if any(mark in template for mark in _FOREIGN_MARKS):
        return None
    if "[TOOL_CALLS]" in template:
        return "mistral"
    if "<tool_call>" in template:
        return "hermes"
    return "llama" if "ipython" in template and '"parameters"' in template else None


def read_calls(text: str, call_format: CallFormat) -> tuple[str, list[ToolCall]]:
    """Reads the calls of one turn; what is before a closing `</think>` holds none.

    Args:
        text: the turn, with the marks that the tokenizer calls special.

    Returns:
        the text before the first call, and the calls; a call that cannot be read has a `problem`.

    Example:
        >>> read_calls('so <tool_call>{"name": "add", "arguments": {"a": 2}}</tool_call>', "hermes")
        ('so', [ToolCall(name='add', arguments={'a': 2}, problem='')])
        >>> read_calls("[TOOL_CALLS]add", "mistral")[1][0].problem
        'the call is no JSON: Expecting value at character 1'
        >>> read_calls("the answer is 4", "llama")
        ('the answer is 4', [])
    """
    thought, closing, said = text.rpartition(THOUGHT_CLOSES)
    content, calls = {"hermes": _hermes, "llama": _llama, "mistral": _mistral}[call_format](said)
    return (thought + closing + content).strip(), calls


def _hermes(text: str) -> tuple[str, list[ToolCall]]:
    content, *bodies = text.split("<tool_call>")
    calls: list[ToolCall] = []
    for body in bodies:
        call, closing, _ = body.partition("</tool_call>")
        unclosed = [ToolCall(problem="the call is not closed by </tool_call>")]
        calls += _calls_in(call, "arguments") if closing else unclosed
    return content, calls


def _mistral(text: str) -> tuple[str, list[ToolCall]]:
    content, mark, body = text.partition("[TOOL_CALLS]")
    return content, _calls_in(body, "arguments") if mark else []


def _llama(text: str) -> tuple[str, list[ToolCall]]:
    content, mark, body = text.partition("<|python_tag|>")
    if mark:
        return content, _calls_in(body, "parameters")
    if text.lstrip().startswith("{") and '"name"' in text and '"parameters"' in text:
        return "", _calls_in(text, "parameters")
    return text, []


def _calls_in(text: str, key: str) -> list[ToolCall]:
    """Reads JSON objects: a single one, a list, or several divided by `;`."""
    if len(text) > _MOST_CHARACTERS:
        return [ToolCall(problem=f"the call is longer than {_MOST_CHARACTERS} characters")]
    decoder = json.JSONDecoder(parse_constant=_no_constant)
    values: list[Any] = []
    body = text.strip()
    while True:
        try:
            value, end = decoder.raw_decode(body)
        except json.JSONDecodeError as error:
            return [ToolCall(problem=f"the call is no JSON: {error.msg} at character {error.pos + 1}")]
        except (ValueError, RecursionError) as error:
            reason = "it is nested too deeply" if isinstance(error, RecursionError) else str(error)[:100]
            return [ToolCall(problem=f"the call is no JSON: {reason}")]
        values += value if isinstance(value, list) else [value]
        body = body[end:].lstrip(" \t\r\n;")
        if not body:
            break
    return [_call(value, key) for value in values] or [ToolCall(problem="the list of calls is empty")]


def _call(value: Any, key: str) -> ToolCall:
    if not isinstance(value, dict) or not isinstance(value.get("name"), str) or not value["name"]:
        return ToolCall(problem=f'a call is an object {{"name": "...", "{key}": {{...}}}}')
    arguments = value.get(key, {})
    if not isinstance(arguments, dict):
        return ToolCall(value["name"], problem=f"{key} is no object of arguments by name")
    return ToolCall(value["name"], arguments)


def _no_constant(name: str) -> Any:
    raise ValueError(f"{name} is no JSON number")


_MOST_UNENDED = 16
"""Calls of a tool that may be under way past their deadlines; the tool is called no more until one of them ends."""


class ToolRunner:
    """Calls functions in threads that are left behind where a call takes too long.

    Args:
        seconds: the deadline of one call.
        max_characters: longest text; the rest is cut off.

    Example:
        >>> runner = ToolRunner(seconds=5.0, max_characters=100)
        >>> runner.call("add", lambda: {"sum": 2 + 2}), runner.call("divide", lambda: 1 / 0)
        (('{"sum": 4}', True), ('error: ZeroDivisionError: division by zero', False))
    """

    def __init__(self, seconds: float, max_characters: int) -> None:
        self.seconds, self.max_characters = seconds, max_characters
        self._unended: dict[str, list[Job]] = {}

    def call(self, name: str, function: Callable[[], Any]) -> tuple[str, bool]:
        """Calls a function and awaits its result where it is awaitable.

        Args:
            name: the name of the tool.
            function: the call with its arguments.

        Returns:
            the result as a text, JSON where the function returned none, and true; or one line `error: ...` and false.
        """
        unended = [job for job in self._unended.get(name, ()) if job.is_alive()]
        if len(unended) >= _MOST_UNENDED:
            return self.error(f"{name} is busy with {len(unended)} earlier calls that have not ended"), False
        self._unended[name] = unended
        job = Job(f"tool-{name}", lambda: _text_of(function()))
        if not job.ends_within(self.seconds):
            unended.append(job)
            return self.error(f"{name} took longer than {self.seconds:g} seconds"), False
        if job.error is not None:
            return self.error(_reason(job.error)), False
        return _encodable(job.value[: self.max_characters]), True

    def error(self, reason: str) -> str:
        """Returns the one line that explains to the policy why a call failed."""
        return _encodable(" ".join(f"error: {reason}".split())[: self.max_characters])


def _text_of(result: Any) -> Any:
    if inspect.isawaitable(result):
        return _awaited_text(result)
    return result if isinstance(result, str) else json.dumps(result, ensure_ascii=False, default=str)


async def _awaited_text(result: Awaitable[Any]) -> Any:
    return _text_of(await result)


def _encodable(text: str) -> str:
    """Replaces halves of surrogate pairs, which JSON can write and no tokenizer takes."""
    return text.encode("utf-8", "replace").decode("utf-8")


def _reason(error: BaseException) -> str:
    try:
        return f"{type(error).__name__}: {error}"
    except Exception:  # the text of a user's exception may raise as well
        return type(error).__name__


_POSITIONAL = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)


class ToolSignature:
    """The name, schema and parameters of a function that a policy may call.

    The schema is what `transformers.utils.get_json_schema` reads from the signature and the docstring. Arguments are
    checked strictly against the type hints: a text is not a number.

    Args:
        function: has a docstring, and for every parameter a type hint and a line under `Args:`.
        place: the key and its value, for errors.

    Raises:
        ConfigError: the function cannot be described.

    Example:
        >>> def add(a: int, b: int = 1) -> int:
        ...     '''Adds two numbers.
        ...
        ...     Args:
        ...         a: the first.
        ...         b: the second.
        ...     '''
        ...     return a + b
        >>> signature = ToolSignature(add, "tools")
        >>> signature.name, signature.schema["function"]["parameters"]["required"]
        ('add', ['a'])
        >>> signature.read({"a": 2}), signature.read({"a": "2"}), signature.read({"c": 2})
        (({'a': 2}, ''), ({}, 'a: Input should be a valid integer'), ({}, 'add has no argument c; it has a, b'))
    """

    def __init__(self, function: Callable[..., Any], place: str) -> None:
        from transformers.utils.chat_template_utils import get_json_schema

        self.function = function
        advice = "write a docstring, and for every parameter a type hint and a line under Args:"
        try:
            parameters = inspect.signature(function).parameters
            self.schema: dict[str, Any] = get_json_schema(function)
        # A user's function may have no signature, or annotations of any kind.
        except Exception as error:
            reason = " ".join(str(error).split())[:300]
            raise ConfigError(f"{place}: it cannot be described as a tool: {reason}; {advice}") from error
        unfit = [str(parameter) for parameter in parameters.values() if parameter.kind in _POSITIONAL]
        if unfit:
            raise ConfigError(
                f"{place}: a call gives arguments by name, and {', '.join(unfit)} cannot be named; write ordinary"
                " parameters"
            )
        self.name: str = self.schema["function"]["name"]
        self.parameters = {
            name: parameters[name] for name in self.schema["function"]["parameters"].get("properties", {})
        }

    def read(self, arguments: Mapping[str, Any]) -> tuple[dict[str, Any], str]:
        """Converts the JSON arguments of a call to those of the function.

        Args:
            arguments: by name, as JSON gave them.

        Returns:
            the arguments and an empty text, or no arguments and the reason in one line.
        """
        values: dict[str, Any] = {}
        for name, value in arguments.items():
            if name not in self.parameters:
                return {}, f"{self.name} has no argument {name}; it has {', '.join(self.parameters) or 'none'}"
            try:
                values[name] = self._adapters[name].validate_json(json.dumps(value), strict=True)
            except ValidationError as error:
                return {}, f"{name}: {error.errors()[0]['msg']}"
            except RecursionError:
                return {}, f"{name}: it is nested too deeply"
        for name, parameter in self.parameters.items():
            if name not in arguments and parameter.default is inspect.Parameter.empty:
                return {}, f"{self.name} needs the argument {name}"
        return values, ""

    @cached_property
    def _adapters(self) -> dict[str, TypeAdapter[Any]]:
        hints = get_type_hints(self.function)
        return {name: TypeAdapter(hints[name]) for name in self.parameters}
