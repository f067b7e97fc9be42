"""Innovation 2.2: credit by how much a decision moves the policy."""

from __future__ import annotations

import math

import pytest
import torch
from tests.objective.small import close, member_ratios

from groupwise.objective import Objective
from groupwise.objective.credit import GradientAdaptive
from groupwise.records import Rollouts, Scored
from groupwise.statistics import finish


def test_surprisal_is_a_softmax_of_minus_log_prob() -> None:
    # exp(|lp|) = e / r: 1/1.5 : 1/0.5 = 1 : 3, mean one: 1/2, 3/2.
    decisions = member_ratios([1.5, None, 0.5], [2.0], [None])
    credit = GradientAdaptive()(decisions)
    close(credit, [[0.5, 0.0, 1.5], [1.0, 0.0, 0.0], [0.0] * 3])
    assert not credit.requires_grad


def test_temperature_divides_the_signal() -> None:
    # T = 1/2 squares the odds: 1 : 9.
    close(GradientAdaptive(temperature=0.5)(member_ratios([1.5, 0.5])), [[0.2, 1.8]])


def test_score_norm_replaces_the_proxy() -> None:
    norm = torch.tensor([[0.0, math.log(3.0)]], dtype=torch.float64)
    decisions = member_ratios([1.5, 0.5], score_norm=norm)
    close(GradientAdaptive(signal="score_norm")(decisions), [[0.5, 1.5]])
    credit = GradientAdaptive(signal="score_norm")
    numbers = finish(credit.measure(credit(decisions), decisions))
    assert numbers == pytest.approx(
        {"gradient_adaptive/avg_gradient_norm": math.log(3.0) / 2, "gradient_adaptive/weight_variance": 0.25}
    )


def test_auto_is_the_proxy_for_discrete_decisions_and_the_norm_for_densities() -> None:
    decisions = member_ratios([1.5, 0.5], score_norm=torch.tensor([[0.0, math.log(3.0)]], dtype=torch.float64))
    auto = GradientAdaptive()
    assert auto.signal == "auto"
    close(auto(decisions), [[0.5, 1.5]])
    assert auto.on(density=False) is auto
    close(auto(decisions), GradientAdaptive(signal="surprisal")(decisions).tolist())
    settled = auto.on(density=True)
    assert (settled.reads, settled.discrete_only) == (frozenset({"score_norm"}), None)
    assert GradientAdaptive(signal="surprisal").on(density=True).discrete_only is not None


@pytest.mark.parametrize("name", ["gradient_adaptive", "balanced", "aggressive", "all_compatible"])
def test_the_presets_of_source_000_serve_densities(name: str) -> None:
    objective = Objective.preset(name)
    rollouts = Rollouts(
        torch.tensor([0, 0]),
        torch.ones(2, 3, dtype=torch.bool),
        torch.full((2, 3), 1.5, dtype=torch.float64),
        {"a": [1.0, 0.0]},
        density=True,
    )
    with pytest.raises(
        ValueError, match=r"write credit.gradient_adaptive.signal = 'score_norm', or take objective.on\(density=True\)"
    ):
        objective.prepare(rollouts, objective.init())
    settled = objective.on(density=True)
    plan = settled.plan(settled.prepare(rollouts, settled.init()))
    norm = torch.tensor([[0.0, 1.0, 2.0]] * 2, dtype=torch.float64)
    log_prob = torch.full((2, 3), 1.5, dtype=torch.float64, requires_grad=True)
    settled.loss(Scored(log_prob, score_norm=norm), plan).backward()
    # On-policy, a token's gradient goes with its credit. The smoothing mixes neighbours and the decay bends it, which
    # is tested by itself.
    if name in ("gradient_adaptive", "aggressive"):
        close(log_prob.grad[0] / log_prob.grad[0].sum(), norm[0].softmax(0).tolist())
    assert settled.on(density=True) is settled
