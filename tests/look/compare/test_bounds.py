"""An interval stays where the score can lie."""

from __future__ import annotations

import pytest

from groupwise_look.compare.grids import difference_bounds, score_bounds
from groupwise_look.compare.statistics import bootstrap, paired_difference

CONFIG = {
    "domain": {
        "rewards": {
            "right": {"kind": "exact_answer"},
            "form": {"kind": "format", "pattern": "a", "wrong": -1.0, "weight": 0.5},
        }
    }
}


def test_an_accuracy_near_one_has_no_interval_above_it() -> None:
    scores = {
        seed: {str(prompt): float(prompt % 16 != seed or prompt > 40) for prompt in range(64)} for seed in range(2)
    }
    free = bootstrap(scores)
    assert free.high > 1, "the case is one in which a free interval leaves the range"
    bounded = free.within(score_bounds(CONFIG, "greedy/right", [0.0, 1.0]))
    assert (bounded.mean, bounded.low, bounded.high) == (free.mean, free.low, 1.0)


def test_a_difference_of_accuracies_lies_between_minus_one_and_one() -> None:
    right = {seed: {str(prompt): 1.0 for prompt in range(4)} for seed in range(2)}
    wrong = {seed: {str(prompt): float(prompt == seed == 0) for prompt in range(4)} for seed in range(2)}
    free = paired_difference(right, wrong)
    assert free.high > 1
    assert free.within(difference_bounds((0.0, 1.0))).high == 1.0


def test_the_sum_of_rewards_has_the_sum_of_their_bounds() -> None:
    assert score_bounds(CONFIG, "greedy/reward", [0.2]) == (-0.5, 1.5)


@pytest.mark.parametrize(
    ("metric", "scores"), [("greedy/right", [0.5, 1.5]), ("restored/psnr", [27.0]), ("greedy/length", [20.0])]
)
def test_bounds_that_a_score_contradicts_are_not_believed(metric: str, scores: list[float]) -> None:
    assert score_bounds(CONFIG, metric, scores) is None


def test_a_configuration_that_is_damaged_has_no_bounds_of_rewards() -> None:
    assert score_bounds({"domain": {"rewards": {"right": {"kind": "nonsense"}}}}, "greedy/right", [0.5]) is None
    assert score_bounds({}, "greedy/right", [0.5]) == (0.0, 1.0)
