"""`groupwise compare` calls at most 5 % of tables of equal variants different, whatever their runs are like."""

from __future__ import annotations

import numpy as np
import pytest
from benchmarks import false_calls
from benchmarks.false_calls import WORLDS, Drawn, called, measure

from groupwise_look.compare.statistics import LEVEL, crossed, holm, p_value


@pytest.mark.slow
@pytest.mark.parametrize("world", WORLDS)
def test_at_most_one_table_in_twenty_of_equal_variants_has_a_call(world: str) -> None:
    num_tables = 400
    error = (LEVEL * (1 - LEVEL) / num_tables) ** 0.5
    shares = measure(WORLDS[world], paired=False, better=False, num_tables=num_tables)
    assert max(shares.values()) <= LEVEL + 2 * error, shares


@pytest.mark.slow
def test_a_better_variant_is_found_more_often_with_more_seeds_and_fewer_comparisons() -> None:
    for world in ("right or wrong, seeds differ", "lognormal seeds", "prompts take sides"):
        shares = measure(WORLDS[world], paired=True, better=True, num_tables=200)
        assert shares[2, 3] < shares[2, 5] < shares[2, 10] > 0.85
        assert shares[2, 5] > shares[4, 5] > shares[6, 5]
        assert shares[4, 3] == shares[6, 3] == 0


def test_many_tables_at_once_are_judged_as_one_is() -> None:
    random = np.random.default_rng(0)
    gains = np.zeros((6, 1, 1), dtype=np.float32)
    gains[1] = 1
    verdicts = []
    for world in WORLDS.values():
        shape = (8, 6, 5, world.num_prompts)
        scores = world.draw(Drawn(random, shape, gains, paired=True)).astype(np.float64)
        differences = scores[:, 1:] - scores[:, :1]
        for table, calls in zip(differences, called(differences), strict=True):
            chances = {place: p_value(float(rows.mean()), crossed(rows)) for place, rows in enumerate(table)}
            expected = holm({place: chance for place, chance in chances.items() if chance is not None})
            assert calls.tolist() == [expected[place] < LEVEL for place in range(5)]
            verdicts += calls.tolist()
    assert 10 < sum(verdicts) < len(verdicts) - 10, "both verdicts occur"


def test_the_t_test_alone_calls_too_many(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(false_calls, "sign_flips", lambda by_seed: 0.0)
    shares = measure(WORLDS["find the trick or not, 16 prompts"], paired=False, better=False, num_tables=400)
    # Beyond what the test above allows.
    assert shares[6, 3] > 0.08
