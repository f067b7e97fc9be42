"""Every mode's formula at one member, worked out by hand, and how v1 and v2 compare under a z-score."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from groupwise.config import ConfigError, validate
from groupwise.objective import Objective
from groupwise.records import Rollouts
from groupwise.reward import score
from groupwise_selection.reward import Vqa
from groupwise_selection.reward.vqa import Hybrid, Legacy

# Right with accuracy .6; the examples added .04 to a probability of .3.
MEMBER = {
    "correct": 1.0,
    "accuracy": 0.6,
    "info": 0.04,
    "expected": 0.5,
    "probability": 0.3,
    "quality": -1.5,
    "relevance": 0.8,
}
WRONG = MEMBER | {"correct": 0.0, "accuracy": 0.3}


def vqa(mode: Any) -> Vqa:
    return validate(Vqa, {"mode": {"kind": mode} if isinstance(mode, str) else mode})


def value(mode: Any, member: dict[str, float] = MEMBER) -> float:
    columns = {name: [each] for name, each in member.items()}
    return vqa(mode)(["q"], ["7"], **columns).values[0]


@pytest.mark.parametrize(
    ("mode", "right", "wrong"),
    [
        ("legacy", 0.04, 0.04),
        ({"kind": "legacy", "alpha": 0.5, "beta": 2.0}, 0.5 * -1.5 + 2, 0.5 * -1.5),
        ({"kind": "legacy", "alpha": 0.0, "beta": 1.0}, 1.0, 0.0),
        ("hard_plus_soft", 1.6, 0.3),
        ({"kind": "hard_plus_soft", "hard_weight": 2.0, "soft_weight": 0.5}, 2.3, 0.15),
        ("hard_plus_soft_v2", 2.6, 0.3),
        ("separated", 2.6, 0.3),
        ({"kind": "separated", "hard_weight": 0.5, "soft_weight": 2.0}, 2.2, 0.6),
        # Before anything was seen the scale is the source's: .04 becomes .4.
        ("hybrid", 0.5 * 0.4 + 0.5 * (1 + 0.3), 0.5 * 0.4 + 0.5 * 0.15),
        ({"kind": "hybrid", "alpha": 0.2, "scale": {"kind": "x10"}}, 0.2 * 0.4 + 0.8 * 1.3, 0.2 * 0.4 + 0.8 * 0.15),
        ("hybrid_v2", 0.5 * 0.4 + 0.5 * 2.6, 0.5 * 0.4 + 0.5 * 0.3),
        ("hard", 1.0, 0.0),
        ("soft", 0.6, 0.3),
        ("expected", 2.5, 0.5),
        ({"kind": "expected", "hard_weight": 0.0}, 0.5, 0.5),
        # Relevance counts for a wrong answer only.
        ("relevance", 2.3, 0.3 + 0.1 * 0.8),
    ],
)
def test_the_formula(mode: Any, right: float, wrong: float) -> None:
    assert value(mode) == pytest.approx(right, abs=1e-12)
    assert value(mode, WRONG) == pytest.approx(wrong, abs=1e-12)


def test_a_mode_reads_nothing_that_has_no_weight() -> None:
    assert Legacy(alpha=0.0, beta=1.0).needs == ("correct",)
    assert Hybrid(alpha=0.0).needs == ("correct", "accuracy")
    assert Hybrid(alpha=1.0).needs == ("info",)


@pytest.mark.parametrize(
    ("mode", "message"),
    [
        ({"kind": "legacy", "alpha": 0.0}, "alpha and beta are both 0"),
        ({"kind": "hard_plus_soft", "hard_weight": 0.0, "soft_weight": 0.0}, "hard_weight and soft_weight are both 0"),
        ("hard_plus_sofft", "mode.kind = .*unknown kind; allowed: legacy, hard_plus_soft.*did you mean hard_plus_soft"),
    ],
)
def test_contradictory_settings_are_refused(mode: Any, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        vqa(mode)


def advantages(mode: str, correct: list[float], accuracy: list[float]) -> torch.Tensor:
    found = score(
        {"vqa": vqa(mode)}, ["q"] * len(correct), ["7"] * len(correct), {"correct": correct, "accuracy": accuracy}
    )
    count = len(correct)
    rollouts = Rollouts(
        torch.zeros(count, dtype=torch.long),
        torch.ones(count, 1, dtype=torch.bool),
        torch.zeros(count, 1),
        rewards=dict(found.values),
    )
    objective = Objective.preset("dapo")
    return objective.prepare(rollouts, objective.init()).advantage[:, 0]


def test_v1_and_v2_nearly_coincide_under_a_z_score() -> None:
    # Two levels only, right with 1 and wrong with 0: any two rewards are a linear map of each other.
    two = [
        advantages(mode, [1.0, 0.0, 0.0, 1.0], [1.0, 0.0, 0.0, 1.0]) for mode in ("hard_plus_soft", "hard_plus_soft_v2")
    ]
    torch.testing.assert_close(*two)
    # Everybody wrong: only the accuracy is left, and its weight is scaled away.
    wrong = [advantages(mode, [0.0] * 4, [0.0, 0.3, 0.6, 0.0]) for mode in ("hard_plus_soft", "hard_plus_soft_v2")]
    torch.testing.assert_close(*wrong)
    # With levels between they differ a little: here by less than a seventh of a standard deviation.
    mixed = [
        advantages(mode, [1.0, 1.0, 0.0, 0.0], [1.0, 0.6, 0.3, 0.0]) for mode in ("hard_plus_soft", "hard_plus_soft_v2")
    ]
    assert 0.01 < float((mixed[0] - mixed[1]).abs().max()) < 1 / 7
