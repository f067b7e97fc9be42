"""Innovation 2.2: credit by how much a decision moves the policy."""

from __future__ import annotations

import math

import pytest
import torch
from tests.objective.small import close, member_ratios

from groupwise.objective.credit.gradient_adaptive import GradientAdaptive
from groupwise.statistics import finish


def test_surprisal_is_a_softmax_of_minus_log_prob() -> None:
    # exp(|lp|) = e / r: 1/1.5 : 1/0.5 = 1 : 3, mean one: 1/2, 3/2.
    given = member_ratios([1.5, None, 0.5], [2.0], [None])
    credit = GradientAdaptive()(given)
    close(credit, [[0.5, 0.0, 1.5], [1.0, 0.0, 0.0], [0.0] * 3])
    assert not credit.requires_grad


def test_temperature_divides_the_signal() -> None:
    # T = 1/2 squares the odds: 1 : 9.
    close(GradientAdaptive(temperature=0.5)(member_ratios([1.5, 0.5])), [[0.2, 1.8]])


def test_score_norm_replaces_the_proxy() -> None:
    norm = torch.tensor([[0.0, math.log(3.0)]], dtype=torch.float64)
    given = member_ratios([1.5, 0.5], score_norm=norm)
    close(GradientAdaptive(signal="score_norm")(given), [[0.5, 1.5]])
    credit = GradientAdaptive(signal="score_norm")
    numbers = finish(credit.measure(credit(given), given))
    assert numbers == pytest.approx({"gradient_adaptive/avg_gradient_norm": math.log(3.0) / 2, "gradient_adaptive/weight_variance": 0.25})
