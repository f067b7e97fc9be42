"""The selector inside DSPy itself: predictors whose prompts it really writes, before a language model of DSPy's own that repeats."""

from __future__ import annotations

import dspy
import pytest
from dspy.utils import DummyLM
from tests.domain.selection.small_selector import QUESTION, small_selector

from groupwise.config import ConfigError
from groupwise.domain.selection.selector import Selector
from groupwise.integrations.dspy import FewShot, SelectDemos


@pytest.fixture
def selector(tmp_path):
    small_selector().save(tmp_path)
    return Selector.load(tmp_path)


def messages(lm, field):
    """What the model was shown: the value of a field in each turn that has it."""
    head = f"[[ ## {field} ## ]]\n"
    turns = [turn["content"] for turn in lm.history[-1]["messages"]]
    turns = ["".join(part["text"] for part in turn) if isinstance(turn, list) else turn for turn in turns]
    return [turn.split(head)[1].split("\n")[0] for turn in turns[1:] if head in turn]


def test_demonstrations_reach_the_model_in_the_order_of_training(selector):
    lm = DummyLM([{"answer": "birch"}])
    predict, select = dspy.Predict("question -> answer"), SelectDemos(selector, k=3)
    with dspy.context(lm=lm):
        assert predict(question=QUESTION, demos=select(QUESTION)).answer == "birch"
    shown = selector.select(QUESTION, 3)
    assert messages(lm, "question") == [*(example.question for example in shown), QUESTION]
    assert messages(lm, "answer")[:3] == [example.answer for example in shown]


def test_a_program_chooses_anew_for_every_question(selector):
    lm = DummyLM([{"desk": "elm"}, {"desk": "fern"}])
    program = FewShot(dspy.Predict("ticket -> desk"), SelectDemos(selector, k=2, question_field="ticket", answer_field="desk"))
    other = "south basic phone zoe new comet"
    with dspy.context(lm=lm):
        assert program(ticket=QUESTION).desk == "elm"
        first = messages(lm, "ticket")
        assert program(ticket=other).desk == "fern"
    assert first == [*(example.question for example in selector.select(QUESTION, 2)), QUESTION]
    assert messages(lm, "ticket") == [*(example.question for example in selector.select(other, 2)), other]
    with pytest.raises(ConfigError, match="no text 'ticket' among the inputs"), dspy.context(lm=lm):
        program(question=QUESTION)


def test_an_example_of_dspys_own_is_added(selector):
    select = SelectDemos(selector, k=24)
    own = select.add(dspy.Example(question=QUESTION, answer="elm"))
    assert own in {example.id for example in selector.examples}
    assert [demo.answer for demo in select(QUESTION) if demo.question == QUESTION] == ["elm"]
    assert all(demo.inputs().toDict() == {"question": demo.question} for demo in select(QUESTION, k=2))
    with pytest.raises(ConfigError, match="no text 'answer' among"):
        select.add(dspy.Example(question=QUESTION))
