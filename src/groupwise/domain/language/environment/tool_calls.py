"""The calls of tools in a turn, as model families write them: Qwen and Hermes, Llama 3, Mistral."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import Any, Literal, final

CallFormat = Literal["hermes", "llama", "mistral"]
"""`hermes`: `<tool_call>{"name": ..., "arguments": {...}}</tool_call>` (Qwen 2.5 and 3, Hermes, SmolLM3); `llama`:
`{"name": ..., "parameters": {...}}` as the whole turn, or after `<|python_tag|>`, several divided by `;`; `mistral`:
`[TOOL_CALLS][{"name": ..., "arguments": {...}}]`.
"""

_MOST_CHARACTERS = 100_000
THOUGHT_OPENS, THOUGHT_CLOSES = "<think>", "</think>"
"""The marks around what is thought and not said."""
_FOREIGN_MARKS = ("<function=", "<arg_key>", "[ARGS]")
"""Marks of templates whose calls are no JSON objects."""


@final
@dataclass(frozen=True)
class ToolCall:
    """One call that a policy wrote.

    Args:
        name: of the tool; empty where the call cannot be read.
        arguments: by name, as JSON gave them.
        problem: one line that says why the call cannot be read; empty where it can.
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
    """Reads the calls of one turn; what stands before a closing `</think>` holds none.

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
    """Reads JSON objects, alone, in a list, or divided by `;`."""
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
