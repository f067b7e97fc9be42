"""When a policy runs away from its reference, and when its coefficient lets it go."""

from __future__ import annotations

from typing import Any

import pytest

from groupwise.diagnosis.rule.divergence import KL_RUNAWAY
from groupwise.diagnosis.stage import Stage

MULTIPLICATIVE = {"kind": "multiplicative", "initial": 0.1, "lower": 0.01, "upper": 0.1}
ADAPTIVE = {"kind": "adaptive", "initial": 0.1, "target": 0.1, "horizon": 10}


def stage(beta: Any, top: float) -> Stage:
    """60 steps whose KL stays at a tenth of `top`, then grows to it, at a reward that stands."""
    watched = Stage("grpo", {"objective": {"divergence": {"kind": "exact", "beta": beta}}})
    for step in range(60):
        grown = top * (0.1 if step < 40 else 0.1 + 0.9 * (step - 39) / 20)
        watched.add({"step": step, "kl": grown * (1 + 0.01 * (step % 3)), "reward": 1.0 + 0.1 * (step % 2)})
    return watched


@pytest.mark.parametrize("beta", [MULTIPLICATIVE, ADAPTIVE], ids=lambda beta: beta["kind"])
def test_a_divergence_within_the_bound_of_its_coefficient_does_not_run_away(beta: dict[str, Any]) -> None:
    assert KL_RUNAWAY.look(stage(beta, top=0.08)) is None
    assert KL_RUNAWAY.look(stage(beta, top=0.5)) is not None


@pytest.mark.parametrize("beta", [0.1, {"kind": "constant", "value": 0.1}, None])
def test_a_coefficient_that_does_not_follow_the_divergence_allows_none(beta: Any) -> None:
    assert KL_RUNAWAY.look(stage(beta, top=0.08)) is not None
