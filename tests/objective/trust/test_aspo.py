"""ASPO: the inverse ratio for good decisions, softly bounded weights."""

from __future__ import annotations

import pytest
import torch
from pydantic import ValidationError
from tests.objective.small import close, gradient, member_ratios

from groupwise.objective.ratio import Geometric
from groupwise.objective.trust import Aspo
from groupwise.statistics import finish


def test_good_decisions_by_the_inverse_ratio() -> None:
    # 1 / 0.5 = 2; 1 / 0.1 is capped at 3 and keeps its gradient; 1.25 is in the clip; 2 is held at 1 / 1.3.
    decisions = member_ratios([0.5, 0.1, 1.25, 2.0], advantage=2.0)
    surrogate = Aspo(low=0.2, high=0.3, bound=3.0)(decisions.log_ratio, decisions)
    close(surrogate.value, [[4.0, 6.0, 1.6, 2 / 1.3]])
    close(gradient(surrogate.value, decisions), [[4.0, 6.0, 1.6, 0.0]])
    assert surrogate.alive.tolist() == [[True, True, True, False]]


def test_bad_decisions_by_the_ratio() -> None:
    # 0.5 is held at 0.8; 2 trains; 5 is capped at 3 and keeps its gradient, where a dual clip would lose it.
    decisions = member_ratios([0.5, 2.0, 5.0], advantage=-1.0)
    surrogate = Aspo(low=0.2, high=0.3, bound=3.0)(decisions.log_ratio, decisions)
    close(surrogate.value, [[-0.8, -2.0, -3.0]])
    close(gradient(surrogate.value, decisions), [[0.0, -2.0, -3.0]])
    assert surrogate.alive.tolist() == [[False, True, True]]


def test_a_capped_weight_keeps_the_decisions_own_gradient_under_a_shared_ratio() -> None:
    # Members of ratio 2 and 5, both bad. At 2 the gradient is the ratio's, shared by the member's decisions; capped at
    # 3 it is each decision's own.
    decisions = member_ratios([4.0, 1.0], [25.0, 1.0], advantage=-1.0)
    surrogate = Aspo(low=0.2, high=0.3, bound=3.0)(Geometric()(decisions.log_ratio, decisions), decisions)
    close(surrogate.value, [[-2.0, -2.0], [-3.0, -3.0]])
    first_gradient = torch.autograd.grad(surrogate.value[:, 0].sum(), decisions.log_prob)[0]
    close(first_gradient, [[-1.0, -1.0], [-3.0, 0.0]])


def test_metrics_and_advantage_zero() -> None:
    decisions = member_ratios([0.1, 2.0], [0.5, 5.0], [0.1, 5.0], advantage=[1.0, -1.0, 0.0])
    surrogate = Aspo()(decisions.log_ratio, decisions)
    assert finish(surrogate.statistics) == pytest.approx(
        {
            "clip_ratio/low_mean": 1 / 6,
            "clip_ratio/high_mean": 1 / 6,
            "clip_ratio/region_mean": 2 / 6,
            "aspo/capped_mean": 2 / 6,
        }
    )
    close(surrogate.value[2:], [[0.0, 0.0]])
    close(gradient(surrogate.value, decisions)[2:], [[0.0, 0.0]])


def test_the_bound_exceeds_one() -> None:
    with pytest.raises(ValidationError, match="bound"):
        Aspo(bound=1.0)


def test_a_ratio_at_the_edge_is_not_held() -> None:
    decisions = member_ratios([2.0, 2.0 + 1e-12], advantage=1.0, old=0.0)
    assert Aspo(high=1.0)(decisions.log_ratio, decisions).alive.tolist() == [[True, False]]
