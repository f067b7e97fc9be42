"""Prompts written out by hand."""

from __future__ import annotations

import pytest
from pydantic import TypeAdapter, ValidationError

from groupwise_selection.task_model.template import ChatTemplate, Template, TextTemplate

PAIRS = [("1 + 1", "2"), ("{answer} or {image}?", "a {question}")]


def test_a_text_prompt_by_hand():
    template = TextTemplate(instruction="Add.\n", question="{image}Q {question} A", answer="<{answer}>", separator=";")
    assert (
        template.prompt("3 + 3", PAIRS, image="#")
        == "Add.\n#Q 1 + 1 A<2>;#Q {answer} or {image}? A<a {question}>;#Q 3 + 3 A"
    )
    assert template.prompt("3 + 3", [], image="#") == "Add.\n#Q 3 + 3 A"
    assert template.prompt("3 + 3", PAIRS[::-1]) != template.prompt("3 + 3", PAIRS)


def test_a_chat_by_hand():
    turns = ChatTemplate(system="Add.", question="Q {question}", answer="{answer}.").messages("3 + 3", PAIRS[:1])
    assert turns == [
        {"role": "system", "content": "Add."},
        {"role": "user", "content": "Q 1 + 1"},
        {"role": "assistant", "content": "2."},
        {"role": "user", "content": "Q 3 + 3"},
    ]
    shown = ChatTemplate(question="{image}{question}").messages("3 + 3", PAIRS[:1])
    assert shown[0]["content"] == [{"type": "image"}, {"type": "text", "text": "1 + 1"}]
    assert shown[1]["content"] == [{"type": "text", "text": "2"}]


@pytest.mark.parametrize(
    ("template", "message"),
    [
        ({"kind": "text", "question": "Q"}, "holds {question} 0 times; write it exactly once"),
        ({"kind": "text", "answer": "{answer} {answer}"}, "holds {answer} 2 times"),
        ({"kind": "chat", "question": "{image}{image}{question}"}, "an example has one picture"),
        ({"kind": "text", "stop": ("",)}, "at least 1 character"),
    ],
)
def test_what_cannot_be_filled_in_is_refused(template, message):
    with pytest.raises(ValidationError) as error:
        TypeAdapter(Template).validate_python(template)
    assert message in str(error.value)
