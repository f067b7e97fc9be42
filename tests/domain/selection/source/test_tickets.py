"""Tickets: what decides is hidden, pools hold it, and no split knows the desks of another."""

from __future__ import annotations

from groupwise.domain.selection.source.base import check
from groupwise.domain.selection.source.tickets import DECIDES, DESKS, Tickets, decisive, told_by

SMALL = Tickets(num_train=60, num_validation=20, num_held_out=60)


def test_every_pool_has_a_ticket_that_tells_and_half_of_its_own_kind():
    questions = SMALL.read()
    check(questions, 4)
    for query in [*questions.train, *questions.validation, *questions.held_out]:
        assert len(query.pool) == 24
        telling = [example for example in query.pool if told_by(query, example)]
        assert {example.answer for example in telling} == {query.answer}
        assert sum(example.question.split()[0] == query.question.split()[0] for example in query.pool) >= 12
        assert query.choices == DESKS


def test_what_decides_by_hand():
    assert decisive("billing north atlas gold web kim") == ("billing", "gold")
    assert decisive("outage north atlas gold web kim") == ("outage", "north")
    assert decisive("login north atlas gold web kim") == ("login", "web")
    assert set(DECIDES.values()) == {0, 1, 2, 3}


def test_desks_are_drawn_anew_for_each_split_and_tickets_are_the_same_every_time():
    questions = SMALL.read()
    desks = []
    for split in (questions.train, questions.held_out):
        known = {decisive(example.question): example.answer for query in split for example in query.pool}
        assert all(known[decisive(query.question)] == query.answer for query in split)
        desks.append(known)
    same = [desks[0][key] == desks[1][key] for key in desks[0] if key in desks[1]]
    assert sum(same) < len(same) / 2
    again = SMALL.read()
    assert [query.question for query in again.held_out] == [query.question for query in questions.held_out]
    assert [[example.id for example in query.pool] for query in again.train] == [[example.id for example in query.pool] for query in questions.train]
    assert SMALL.model_copy(update={"seed": 1}).read().train[0].question != questions.train[0].question
    shown = {example.id for query in questions.held_out for example in query.pool}
    assert not shown & {example.id for query in questions.train for example in query.pool}
