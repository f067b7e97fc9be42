"""CISPO: the importance weight is capped, the gradient never lost."""

from __future__ import annotations

import pytest
from pydantic import ValidationError
from tests.objective.small import close, gradient, member_ratios

from groupwise.objective import Objective
from groupwise.objective.trust import Cispo
from groupwise.statistics import finish


def test_capped_weight_times_the_score() -> None:
    decisions = member_ratios([8.0, 2.0], [8.0, 2.0], advantage=[1.0, -1.0], old=-4.0)
    surrogate = Cispo(maximum=5.0)(decisions.log_ratio, decisions)
    log_prob = decisions.log_prob.detach()
    close(
        surrogate.value,
        [
            [5 * float(log_prob[0, 0]), 2 * float(log_prob[0, 1])],
            [-5 * float(log_prob[1, 0]), -2 * float(log_prob[1, 1])],
        ],
    )
    close(gradient(surrogate.value, decisions), [[5.0, 2.0], [-5.0, -2.0]])
    assert surrogate.alive.all()
    assert finish(surrogate.statistics) == {"cispo_clip_ratio": 0.25}


def test_the_cap_is_absolute() -> None:
    with pytest.raises(ValidationError, match="maximum"):
        Cispo(maximum=0.0)
    assert "write trust.maximum = 5.0" in next(Cispo(maximum=0.2).advises(Objective.preset("cispo")))
    assert not list(Cispo().advises(Objective.preset("cispo")))
