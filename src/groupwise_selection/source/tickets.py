"""Support tickets to be sent to the right desk: text questions whose answers are a convention that only solved tickets
show.
"""

from __future__ import annotations

from dataclasses import replace
from itertools import islice
from typing import Annotated, Literal, final

import numpy as np
from pydantic import Field, model_validator

from groupwise.config import Config
from groupwise.config.errors import Count, PerStep, Seed
from groupwise_selection.embedder import HashedWords
from groupwise_selection.example import Example, Query, Questions, distinct

PRODUCTS = ("atlas", "beacon", "comet", "delta", "ember", "falcon", "gamma", "helix", "iris", "jade", "kite", "lotus")
REGIONS = ("north", "south", "east", "west", "inland", "coast")
PLANS = ("free", "basic", "team", "pro", "gold", "partner")
CHANNELS = ("mail", "phone", "chat", "web", "letter", "visit")
CUSTOMERS = (
    *("kim", "ana", "ben", "eva", "ida", "jon", "lea", "max"),
    *("nia", "ola", "per", "rui", "sam", "tom", "uma", "zoe"),
)
AGES = ("new", "old")
WORDS = (REGIONS, PLANS, CHANNELS, CUSTOMERS, AGES, PRODUCTS)
"""The words of a ticket in their order."""
DESKS = ("amber", "birch", "cedar", "dune", "elm", "fern", "grove", "heath")


@final
class Tickets(Config):
    """Tickets of six words, `north gold web kim new atlas`; the answer is the desk that deals with it.

    The product alone decides the desk, and desks have moved: an old ticket went elsewhere. So only new tickets
    of the same product show a new ticket's desk, and nothing in a text says so; similarity counts all words alike. The
    desks of training, validation and held-out tickets are drawn anew, so that none can be known by heart: what can be
    learnt is which solved tickets to show. A pool holds at least one such ticket, and `num_old` old ones of the same
    product.

    Args:
        num_train, num_validation, num_held_out: queries of each split.
        bank_size: solved tickets of each split, of which pools are drawn.
        pool_size: examples in the pool of a query.
        num_old: old tickets of the query's product in its pool.
        embedder: embeds texts as vectors.
        seed: seed of tickets, desks and pools. It is not the run's seed: runs with different seeds are judged on the
            same tickets.

    Example:
        >>> questions = Tickets(num_train=4, num_validation=2, num_held_out=2).read()
        >>> query = questions.train[0]
        >>> len(query.question.split()), len(query.pool), sum(same_key(query, example) for example in query.pool) > 0
        (6, 24, True)
    """

    kind: Literal["tickets"] = "tickets"
    num_train: PerStep = 2048
    num_validation: PerStep = 256
    num_held_out: PerStep = 2048
    bank_size: PerStep = 480
    pool_size: Annotated[PerStep, Field(ge=2)] = 24
    num_old: Count = 2
    embedder: HashedWords = HashedWords()
    seed: Seed = 0

    @model_validator(mode="after")
    def _sound(self) -> Tickets:
        if self.bank_size < 4 * self.pool_size or self.pool_size <= self.num_old:
            raise ValueError(
                f"pool_size = {self.pool_size} with num_old = {self.num_old} and bank_size = {self.bank_size}: write a"
                " pool above num_old and a bank of at least four pools"
            )
        return self

    def read(self) -> Questions:
        """Generates all tickets, split; the same on every call."""
        random = np.random.default_rng(self.seed)
        sizes = {"train": self.num_train, "validation": self.num_validation, "held_out": self.num_held_out}
        splits = {split: self._split(split, size, random) for split, size in sizes.items()}
        return Questions(splits["train"], splits["validation"], splits["held_out"])

    def _split(self, split: str, size: int, random: np.random.Generator) -> list[Query]:
        desks = {(product, age): DESKS[int(random.integers(len(DESKS)))] for age in AGES for product in PRODUCTS}
        # The bank begins with a ticket of every product and age, so that every query has one that shows its desk.
        solved_texts = [draw_ticket(random, age, product) for product, age in desks] + [
            draw_ticket(random) for _ in range(self.bank_size - len(desks))
        ]
        ticket_texts = [draw_ticket(random, AGES[0]) for _ in range(size)]
        vectors = self.embedder(solved_texts)
        bank = [
            Example(f"{split}-solved-{place}", text, desks[decisive(text)], vectors[place])
            for place, text in enumerate(solved_texts)
        ]
        by_key: dict[tuple[str, str], list[Example]] = {}
        for example in bank:
            by_key.setdefault(decisive(example.question), []).append(example)
        queries = []
        for place, (text, vector) in enumerate(zip(ticket_texts, self.embedder(ticket_texts), strict=True)):
            product, age = decisive(text)
            query = Query(
                f"{split}-{place}", text, (desks[product, age],), vector, (), None, DESKS, {"product": product}
            )
            telling_examples = islice(distinct(_shuffled(by_key[product, age], random), query), 1)
            old_examples = islice(distinct(_shuffled(by_key[product, AGES[1]], random)), self.num_old)
            shown = [*telling_examples, *old_examples, *_shuffled(bank, random)]
            pool = list(islice(distinct(shown, query), self.pool_size))
            queries.append(replace(query, pool=tuple(pool[index] for index in random.permutation(len(pool)))))
        return queries


def draw_ticket(random: np.random.Generator, age: str | None = None, product: str | None = None) -> str:
    """Draws the text of a ticket."""
    drawn = [words[int(random.integers(len(words)))] for words in WORDS]
    return " ".join([*drawn[:-2], age or drawn[-2], product or drawn[-1]])


def decisive(text: str) -> tuple[str, str]:
    """Returns a ticket's product and age, which decide its desk.

    Example:
        >>> decisive("north gold web kim new atlas")
        ('atlas', 'new')
    """
    words = text.split()
    return words[-1], words[-2]


def same_key(query: Query, example: Example) -> bool:
    """Tests whether a solved ticket has the product and age of a query, and so its desk."""
    return decisive(query.question) == decisive(example.question)


def _shuffled(items: list[Example], random: np.random.Generator) -> list[Example]:
    return [items[index] for index in random.permutation(len(items))]
