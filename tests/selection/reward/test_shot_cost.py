"""What an example costs."""

from __future__ import annotations

import pytest

from groupwise.reward import score
from groupwise_selection.reward import ShotCost, Vqa
from groupwise_selection.reward.vqa import Plain


def test_stopping_early_pays_when_the_rest_adds_less_than_it_costs() -> None:
    rewards = {"vqa": Vqa(mode=Plain(kind="soft")), "cost": ShotCost(weight=0.01)}
    columns = {"accuracy": [0.9, 0.9, 1.0], "shots": [1, 4, 4]}
    totals = score(rewards, ["q"] * 3, ["7"] * 3, columns).total()
    # Stopped after one; four for the same answer; four for a better one.
    assert totals == pytest.approx([0.89, 0.86, 0.96])


def test_a_cost_is_no_prize() -> None:
    with pytest.raises(ValueError, match="greater than or equal to 0"):
        ShotCost(weight=-0.1)
