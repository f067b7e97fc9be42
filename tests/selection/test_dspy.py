"""The selector inside DSPy itself: predictors whose prompts it really writes, before a language model of DSPy's own
that repeats.
"""

from __future__ import annotations

import dspy
import pytest
from dspy.utils import DummyLM
from tests.selection.small_selector import QUESTION, small_selector

from groupwise.config import ConfigError
from groupwise_selection.dspy import FewShot, SelectDemos
from groupwise_selection.selector import Selector

pytestmark = pytest.mark.slow


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
    program = FewShot(
        dspy.Predict("ticket -> desk"), SelectDemos(selector, k=2, question_field="ticket", answer_field="desk")
    )
    other = "south basic phone zoe new comet"
    with dspy.context(lm=lm):
        assert program(ticket=QUESTION).desk == "elm"
        first = messages(lm, "ticket")
        assert program(ticket=other).desk == "fern"
    assert first == [*(example.question for example in selector.select(QUESTION, 2)), QUESTION]
    assert messages(lm, "ticket") == [*(example.question for example in selector.select(other, 2)), other]
    with pytest.raises(ConfigError, match="no text 'ticket' among the inputs"), dspy.context(lm=lm):
        program(question=QUESTION)


@pytest.mark.parametrize("predictor", [dspy.Predict, dspy.ChainOfThought])
@pytest.mark.parametrize("optimiser", ["labelled", "bootstrap"])
def test_a_compiled_program_still_chooses_and_is_saved_and_loaded(selector, tmp_path, predictor, optimiser):
    def program():
        return FewShot(predictor("question -> answer"), SelectDemos(selector, k=2))

    other = "south basic phone zoe new comet"
    known = [dspy.Example(question=question, answer="elm").with_inputs("question") for question in (QUESTION, other)]
    lm = DummyLM([{"reasoning": "seen before", "answer": "elm"}] * 20)
    with dspy.context(lm=lm):
        if optimiser == "labelled":
            compiled = dspy.LabeledFewShot(k=1).compile(program(), trainset=known)
        else:
            metric = lambda example, found, trace=None: example.answer == found.answer  # noqa: E731
            compiled = dspy.BootstrapFewShot(metric=metric, max_bootstrapped_demos=1, max_labeled_demos=1).compile(
                program(), trainset=known
            )
        compiled.save(tmp_path / "program.json")
        loaded = program()
        loaded.load(tmp_path / "program.json")
        for each in (compiled, loaded):
            assert [len(part.demos) for part in each.predictors()] == [1]
            assert each(question=other).answer == "elm"
            # The demonstrations are the selector's, not those the optimiser put there.
            assert messages(lm, "question") == [*(example.question for example in selector.select(other, 2)), other]
    own = selector.add(other, "elm")
    assert compiled.select.selector is selector
    assert own in {example.id for example in compiled.select.selector.examples}


def test_an_example_of_dspys_own_is_added(selector):
    select = SelectDemos(selector, k=24)
    own = select.add(dspy.Example(question=QUESTION, answer="elm"))
    assert own in {example.id for example in selector.examples}
    assert [demo.answer for demo in select(QUESTION) if demo.question == QUESTION] == ["elm"]
    assert all(demo.inputs().toDict() == {"question": demo.question} for demo in select(QUESTION, k=2))
    with pytest.raises(ConfigError, match="no text 'answer' among"):
        select.add(dspy.Example(question=QUESTION))
