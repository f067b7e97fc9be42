"""Tickets: what decides is hidden, pools hold it beside what misleads, and no split knows the desks of another."""

from __future__ import annotations

import numpy as np

from groupwise_selection.source.base import check
from groupwise_selection.source.tickets import DESKS, PRODUCTS, Tickets, decisive, same_key

SMALL = Tickets(num_train=60, num_validation=20, num_held_out=60)


def test_every_pool_has_a_ticket_that_tells_and_two_old_ones_that_mislead():
    questions = SMALL.read()
    check(questions, 4)
    for query in [*questions.train, *questions.validation, *questions.held_out]:
        assert len(query.pool) == 24
        product, age = decisive(query.question)
        assert age == "new"
        telling = [example for example in query.pool if same_key(query, example)]
        assert {example.answer for example in telling} == {query.answer}
        assert sum(decisive(example.question) == (product, "old") for example in query.pool) >= 2
        assert query.choices == DESKS


def test_similarity_alone_often_misses_what_tells():
    """The room that a learnt choice has."""
    found = []
    for query in Tickets(num_train=2, num_validation=1, num_held_out=300).read().held_out:
        nearest = max(query.pool, key=lambda example: float(example.embedding @ query.embedding))
        found.append(same_key(query, nearest))
    assert 0.25 < np.mean(found) < 0.5


def test_desks_are_drawn_anew_for_each_split_and_tickets_are_the_same_every_time():
    questions = SMALL.read()
    desks = []
    for split in (questions.train, questions.held_out):
        known = {decisive(example.question): example.answer for query in split for example in query.pool}
        assert all(known[decisive(query.question)] == query.answer for query in split)
        desks.append(known)
    assert sum(desks[0][product, "new"] == desks[1][product, "new"] for product in PRODUCTS) < 6
    again = SMALL.read()
    assert [query.question for query in again.held_out] == [query.question for query in questions.held_out]
    assert [[example.id for example in query.pool] for query in again.train] == [
        [example.id for example in query.pool] for query in questions.train
    ]
    assert SMALL.model_copy(update={"seed": 1}).read().train[0].question != questions.train[0].question
    shown = {example.id for query in questions.held_out for example in query.pool}
    assert not shown & {example.id for query in questions.train for example in query.pool}
