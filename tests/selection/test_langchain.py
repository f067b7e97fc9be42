"""The selector inside LangChain itself: prompts that it really formats."""

from __future__ import annotations

import asyncio

import pytest
from langchain_core.prompts import (
    ChatPromptTemplate,
    FewShotChatMessagePromptTemplate,
    FewShotPromptTemplate,
    PromptTemplate,
)
from tests.selection.small_selector import QUESTION, small_selector

from groupwise_selection.langchain import GroupwiseExampleSelector
from groupwise_selection.selector import Selector

pytestmark = pytest.mark.slow


@pytest.fixture
def selector(tmp_path):
    small_selector().save(tmp_path)
    return Selector.load(tmp_path)


def few_shot(chosen, question="question", answer="answer"):
    shown = PromptTemplate.from_template(f"{{{question}}}: {{{answer}}}")
    return FewShotPromptTemplate(
        example_selector=chosen,
        example_prompt=shown,
        suffix=f"{{{question}}}:",
        input_variables=[question],
        example_separator="\n",
    )


def test_a_prompt_is_the_one_the_task_model_was_trained_on(selector):
    assert few_shot(GroupwiseExampleSelector(selector)).format(question=QUESTION) == selector.prompt(QUESTION)
    assert len(selector.prompt(QUESTION).splitlines()) == 5
    turned = GroupwiseExampleSelector(selector, k=2, order="first_pick_first")
    first, second, asked = few_shot(turned).format(question=QUESTION).splitlines()
    assert selector.prompt(QUESTION, 2).splitlines() == [second, first, asked]


def test_a_chat_and_names_of_ones_own(selector):
    chosen = GroupwiseExampleSelector(selector, k=2, question_key="ticket", answer_key="desk")
    turns = ChatPromptTemplate.from_messages([("human", "{ticket}"), ("ai", "{desk}")])
    chat = ChatPromptTemplate.from_messages(
        [
            FewShotChatMessagePromptTemplate(example_selector=chosen, example_prompt=turns, input_variables=["ticket"]),
            ("human", "{ticket}"),
        ]
    )
    shown = selector.select(QUESTION, 2)
    texts = [message.content for message in chat.format_messages(ticket=QUESTION)]
    assert texts == [shown[0].question, shown[0].answer, shown[1].question, shown[1].answer, QUESTION]


def test_an_example_that_langchain_adds_is_shown(selector):
    chosen = GroupwiseExampleSelector(selector, k=24)
    own = chosen.add_example({"question": QUESTION, "answer": "elm"})
    assert own in {example.id for example in selector.examples}
    assert f"{QUESTION}: elm\n" in few_shot(chosen).format(question=QUESTION)


def test_asynchronous_selection_and_adding(selector):
    chosen = GroupwiseExampleSelector(selector, k=3)
    alone = chosen.select_examples({"question": QUESTION})

    async def both():
        found = await asyncio.gather(*(chosen.aselect_examples({"question": QUESTION}) for _ in range(8)))
        return found, await chosen.aadd_example({"question": QUESTION, "answer": "elm"})

    found, own = asyncio.run(both())
    assert found == [alone] * 8
    assert len(alone) == 3
    assert selector.examples[-1].id == own
