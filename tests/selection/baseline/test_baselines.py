"""Other ways to choose demonstrations, by hand."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from tests.selection.handmade import Majority, example, query

from groupwise_selection.baseline import dpp, fixed, mmr, nearest, oracle, prefixes, random
from groupwise_selection.measurement import Measures


def ids(choices: list[list[tuple]]) -> list[list[str]]:
    return [["".join(each.id for each in choice) for choice in own] for own in choices]


# Cosines with the query (1, 0): a 1, b .98, c .6, d 0. b is nearly a, c is not.
POOL = [
    example("d", "no", 0, 1),
    example("c", "no", 0.6, 0.8),
    example("a", "yes", 1, 0),
    example("b", "yes", 0.98, 0.199),
]
ASKED = query("q", POOL, choices=("yes", "no"))


def test_nearest_first_and_of_equals_the_first_of_the_pool() -> None:
    assert ids(prefixes(nearest, [ASKED], 3)) == [["a", "ab", "abc"]]
    assert ids(prefixes(nearest, [query("q", [example("x"), example("y")])], 2)) == [["x", "xy"]]


def test_random_is_uniform_without_replacement_and_keyed_by_the_query() -> None:
    queries = [query(f"q{number}", POOL) for number in range(400)]
    first = [own[0][0].id for own in prefixes(random(), queries, 2)]
    assert all(70 < first.count(name) < 130 for name in "abcd")
    assert ids(prefixes(random(), queries[5:6], 2)) == [ids(prefixes(random(), queries, 2))[5]]
    assert all(len({each.id for each in own[1]}) == 2 for own in prefixes(random(), queries, 2))


def test_mmr_weighs_nearness_against_likeness() -> None:
    # After a: b .98 - its likeness to a .98, c .6 - .6; at 1/2 both are 0 and b is worse by no more than rounding, so
    # the weights decide.
    assert ids(prefixes(mmr(1.0), [ASKED], 3)) == ids(prefixes(nearest, [ASKED], 3))
    near, like = np.array([0.98, 0.6, 0.0]), np.array([0.98, 0.6, 0.0])
    assert (0.3 * near - 0.7 * like).argmax() == 2
    assert ids(prefixes(mmr(0.3), [ASKED], 2)) == [["a", "ad"]]
    assert ids(prefixes(mmr(0.9), [ASKED], 2)) == [["a", "ab"]]


@pytest.mark.parametrize("quality", [0.5, 2.0, 20.0])
def test_each_dpp_pick_adds_most_to_the_determinant(quality: float) -> None:
    generator = np.random.default_rng(0)
    pool = [example(str(place), "yes", *generator.standard_normal(4)) for place in range(7)]
    asked = query("q", pool, ("yes", "yes"), *generator.standard_normal(4))
    vectors = np.stack([each.embedding for each in pool]).astype(np.float64)
    scale = np.exp(quality * (vectors @ asked.embedding.astype(np.float64)))
    kernel = vectors @ vectors.T * np.outer(scale, scale)
    picks: list[int] = []
    for _ in range(3):
        left = [place for place in range(7) if place not in picks]
        picks.append(
            max(left, key=lambda place: np.linalg.slogdet(kernel[np.ix_([*picks, place], [*picks, place])])[1])
        )
    assert [each.id for each in prefixes(dpp(quality), [asked], 3)[0][2]] == [str(place) for place in picks]


def test_the_fixed_set_is_the_best_for_the_training_queries() -> None:
    # Majority answers what most demonstrations answer: where most queries mean no, those that say no are best.
    train = [query(f"q{number}", POOL, ["no"] * 10, choices=("yes", "no")) for number in range(3)] + [
        query("other", POOL, ["yes"] * 10, choices=("yes", "no"))
    ]
    (choice,) = prefixes(fixed(Measures(Majority()), train, "first_pick_last", 2), [ASKED], 2)
    assert {each.answer for each in choice[1]} == {"no"}
    assert len(choice[0]) == 1


def test_the_oracle_finds_the_best_ordered_choice_where_the_beam_is_wide() -> None:
    measures = Measures(Majority())
    asked = query("q", POOL, ["no"] * 10, choices=("yes", "no"))
    (found,) = oracle(measures, [asked], 2, "first_pick_last", width=12)
    for size, choice in enumerate(found, 1):
        every = measures(
            [asked] * len(list(itertools.permutations(POOL, size))), list(itertools.permutations(POOL, size))
        )
        (own,) = measures([asked], [choice[::-1]])
        assert (own.accuracy, own.expected) == max((each.accuracy, each.expected) for each in every)
