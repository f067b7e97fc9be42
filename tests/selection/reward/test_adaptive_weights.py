"""Weights that follow their parts, by hand."""

from __future__ import annotations

import pytest

from groupwise_selection.reward.adaptive_weights import AdaptiveWeights

CONFIGURED = {"correct": 2.0, "info": 1.0}


def test_spread_gives_each_part_its_configured_share_of_the_movement() -> None:
    adapt = AdaptiveWeights(follow="spread", decay=0.9)
    # Unbiased standard deviations: of 0, 2 it is sqrt(2); of 0.0, 0.5 a quarter of that.
    memory = adapt.observe({}, [{"correct": [0.0, 2.0], "info": [0.0, 0.5]}])
    weights = adapt.weights(CONFIGURED, memory)
    # w/s is 2/4 : 1/1 in units of the smaller, scaled to a sum of 3.
    assert weights == pytest.approx({"correct": 1.0, "info": 2.0})
    moved = {part: weights[part] * total / weight for part, (total, weight) in memory.items()}
    assert moved["correct"] / moved["info"] == pytest.approx(2.0)


def test_informative_gives_weight_to_parts_that_differ_inside_groups() -> None:
    adapt = AdaptiveWeights(follow="informative", decay=0.0)
    groups = [{"correct": [1.0, 1.0], "info": [0.1, 0.2]}, {"correct": [0.0, 0.0], "info": [0.1, 0.2]},
              {"correct": [0.0, 1.0], "info": [0.1, 0.1]}, {"correct": [0.0, 0.0], "info": [0.3, 0.2]}]  # fmt: skip
    memory = adapt.observe({}, groups)
    # Flat in 3 of 4 and 1 of 4 groups: 2 * 1/4 and 1 * 3/4, which sum to 1.25 and are scaled to 3.
    assert adapt.weights(CONFIGURED, memory) == pytest.approx({"correct": 1.2, "info": 1.8})


def test_averages_over_batches_are_corrected_for_their_start() -> None:
    adapt = AdaptiveWeights(follow="informative", decay=0.5)
    memory = adapt.observe({}, [{"correct": [1.0, 1.0]}])
    memory = adapt.observe(memory, [{"correct": [0.0, 1.0]}])
    # 1 with weight 0.25 and 0 with weight 0.5.
    assert memory["correct"][0] / memory["correct"][1] == pytest.approx(0.25 / 0.75)


def test_the_configured_weights_stand_before_the_first_batch_and_where_nothing_is_said() -> None:
    for follow in ("spread", "informative"):
        adapt = AdaptiveWeights(follow=follow)  # type: ignore[arg-type]
        assert adapt.weights(CONFIGURED, {}) == CONFIGURED
        silent = adapt.observe({}, [{"correct": [1.0, 1.0], "info": [0.1, 0.1]}])
        assert adapt.weights(CONFIGURED, silent) == CONFIGURED
        # A group of one has no comparison.
        assert adapt.observe({}, [{"correct": [1.0], "info": [0.2]}]) == {}


def test_a_part_that_never_moved_is_not_blown_up() -> None:
    adapt = AdaptiveWeights(follow="spread")
    memory = adapt.observe({}, [{"correct": [1.0, 1.0], "info": [0.0, 0.1]}])
    assert adapt.weights(CONFIGURED, memory) == pytest.approx(CONFIGURED)
