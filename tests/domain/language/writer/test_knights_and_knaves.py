from __future__ import annotations

import itertools

import pytest

from groupwise.domain.language.source import ReasoningGym
from groupwise.domain.language.writer.knights_and_knaves import formula, holds, in_letters, work, write
from groupwise.reward import KnightsAndKnaves
from groupwise.reward import ReasoningGym as TaskReward

AL, BO = ["telling-truth", 0], ["telling-truth", 1]


@pytest.mark.parametrize(
    ("statement", "true_for", "text"),
    [
        (AL, {"TT", "TF"}, "P"),
        (["lying", 1], {"TF", "FF"}, "not Q"),
        (["not", AL], {"FT", "FF"}, "not P"),
        (["and", AL, BO], {"TT"}, "P and Q"),
        (["or", AL, BO], {"TT", "TF", "FT"}, "P or Q"),
        (["->", AL, BO], {"TT", "FT", "FF"}, "P implies Q"),
        (["<=>", AL, BO], {"TT", "FF"}, "P iff Q"),
        (["->", ["and", AL, BO], ["lying", 0]], {"TF", "FT", "FF"}, "(P and Q) implies not P"),
        (["not", ["or", AL, BO]], {"FF"}, "not (P or Q)"),
    ],
)
def test_truth_tables_and_their_letters(statement, true_for, text):
    cases = list(itertools.product((True, False), repeat=2))
    assert {
        "".join("T" if each else "F" for each in honest) for honest in cases if holds(statement, honest)
    } == true_for
    assert formula(statement) == text


def test_the_search_agrees_with_the_tasks_solution_and_every_text_earns_the_full_reward():
    rows = ReasoningGym(task="knights_knaves", parameters={"n_people": 3}).rows(60, seed=0)
    rows = [in_letters(row) for row in rows]
    for row in rows:
        case, said = work(row["metadata"]["statements"]).removesuffix(".").split("; ")[-1].split(": ")
        assert [letter.isupper() for letter in case.split()] == row["metadata"]["solution"]
        assert [text.split()[-1] == "true" for text in said.split(", ")] == row["metadata"]["solution"], (
            "everybody's statement fits"
        )
    texts = [write(row, seed=0) for row in rows]
    assert set(KnightsAndKnaves()([""] * 60, texts, answer=[row["answer"] for row in rows])) == {3.0}
    assert 12 < sum("<think></think>" not in text for text in texts) < 36


def test_the_letters_say_what_the_task_says_and_its_own_rule_reads_the_answer():
    row = ReasoningGym(task="knights_knaves", parameters={"n_people": 2}).rows(1, seed=0)[0]
    assert 'Victoria commented, "if Victoria is a knight then Jacob is a knave". ' in row["question"]
    assert 'Jacob said, "Jacob is a knight if and only if Victoria is a knight."' in row["question"]
    changed = in_letters(row)
    assert changed["prompt"] == "P says P implies not Q. Q says Q iff P."
    assert changed["answer"] == "P is a knight, and Q is a knave."
    assert row["answer"] == "Victoria is a knight, and Jacob is a knave."
    said = ["Q is a knave, and P is a knight.", "P is a knave, and Q is a knave."]
    right, wrong = TaskReward(task="knights_knaves")(
        [""] * 2, said, answer=[changed["answer"]] * 2, metadata=[changed["metadata"]] * 2
    )
    assert right == 1.0 > wrong
