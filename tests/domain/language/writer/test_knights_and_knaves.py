from __future__ import annotations

import itertools

import pytest

from groupwise.domain.language.source import ReasoningGym
from groupwise.domain.language.writer.knights_and_knaves import holds, work, write
from groupwise.reward import KnightsAndKnaves

AL, BO = ["telling-truth", 0], ["telling-truth", 1]


@pytest.mark.parametrize(
    ("statement", "true_for"),
    [
        (AL, {"TT", "TF"}),
        (["lying", 1], {"TF", "FF"}),
        (["not", AL], {"FT", "FF"}),
        (["and", AL, BO], {"TT"}),
        (["or", AL, BO], {"TT", "TF", "FT"}),
        (["->", AL, BO], {"TT", "FT", "FF"}),
        (["<=>", AL, BO], {"TT", "FF"}),
        (["->", ["and", AL, BO], ["lying", 0]], {"TF", "FT", "FF"}),
    ],
)
def test_truth_tables(statement, true_for):
    cases = list(itertools.product((True, False), repeat=2))
    assert {"".join("T" if each else "F" for each in honest) for honest in cases if holds(statement, honest)} == true_for


def test_the_search_agrees_with_the_tasks_solution_and_every_text_earns_the_full_reward():
    rows = ReasoningGym(task="knights_knaves").rows(60, seed=0)
    for row in rows:
        metadata = row["metadata"]
        last = work(metadata["names"], metadata["statements"], ("honest", "liar")).removesuffix(" yes.").split(". ")[-1]
        assert [part.split()[-1] == "honest" for part in last.split(":")[0].split(", ")] == metadata["solution"]
    texts = [write(row, seed=0) for row in rows]
    assert set(KnightsAndKnaves()([""] * 60, texts, answer=[row["answer"] for row in rows])) == {3.0}
    assert 10 < sum("<think></think>" not in text for text in texts) < 40


def test_an_unknown_statement_is_an_error():
    with pytest.raises(ValueError, match="'xor' is no kind of statement"):
        holds(["xor", AL, BO], (True, True))
