from __future__ import annotations

import json

import pytest

from groupwise.domain.language.tools import ToolCall, format_of, read_calls

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


def test_what_stands_before_the_calls_is_their_content():
    assert read_calls("let me see " + FORMS["hermes"]([ADD]), "hermes")[0] == "let me see"
    assert read_calls("let me see <|python_tag|>" + FORMS["llama"]([ADD]), "llama")[0] == "let me see"
    assert read_calls("see" + FORMS["mistral"]([ADD]), "mistral")[0] == "see"


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
