"""The chain of credits: a product brought back to mean one."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
import torch
from tests.objective.small import close, member_ratios, recorded

from groupwise.objective import Objective
from groupwise.objective.credit import (
    Credit,
    GradientAdaptive,
    InverseStep,
    LogDecay,
    OffPolicyMask,
    TemporalDecay,
    TopEntropy,
)
from groupwise.objective.decisions import Decisions
from groupwise.records import Rollouts, Scored
from groupwise.statistics import finish


def test_empty_chain_is_uniform() -> None:
    assert Credit().uniform
    close(Credit()(member_ratios([1.0, None, 2.0])), [[1.0, 0.0, 1.0]])


def test_product_is_renormalised() -> None:
    # (1, 1/2) times (1, 3) in proportion: 1 : 1.5, mean one: 0.8, 1.2.
    chain = Credit(temporal_decay=TemporalDecay(gamma=0.5), gradient_adaptive=GradientAdaptive())
    close(chain(member_ratios([1.5, 0.5], [None])), [[0.8, 1.2], [0.0, 0.0]])
    assert not chain.uniform
    decisions = member_ratios([1.5, 0.5])
    assert set(chain.measure(chain.parts(decisions), decisions)) >= {
        "temporal_decay/weight_sum",
        "gradient_adaptive/weight_variance",
    }


def test_a_product_that_vanishes_everywhere_is_uniform() -> None:
    # The first credit leaves nothing after the second decision, the other nothing before the third; a masked decision
    # gets none.
    decisions = member_ratios([1.0, 1.0, 1.0, None])
    decisions = replace(decisions, log_prob=decisions.log_prob.detach() - torch.tensor([[0.0, 0.0, 900.0, 0.0]]))
    close(
        Credit(temporal_decay=TemporalDecay(gamma=1e-200), gradient_adaptive=GradientAdaptive())(decisions),
        [[1.0, 1.0, 1.0, 0.0]],
    )


# Innovation 2.2: credit by how much a decision moves the policy.


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


# Credit by the inverse of the step size.


STEPS = torch.tensor([[0.25, 0.0, 0.5], [2.0, 0.0, 0.0]], dtype=torch.float64)


def test_mean_one_otherwise() -> None:
    decisions = recorded(
        member_ratios([1.0, None, 1.0], [1.0], [None]), step_size=torch.cat([STEPS, torch.zeros(1, 3)])
    )
    close(InverseStep()(decisions), [[4 / 3, 0.0, 2 / 3], [1.0, 0.0, 0.0], [0.0, 0.0, 0.0]])


def test_needs_positive_steps() -> None:
    objective = Objective.preset("bnpo", **{"credit.inverse_step.raw": True})
    assert objective.requires_rollouts == {"step_size"}
    group, mask, old, rewards = (
        torch.tensor([0, 0]),
        torch.ones(2, 1, dtype=torch.bool),
        torch.full((2, 1), -1.0),
        {"reward": [0.0, 1.0]},
    )
    with pytest.raises(ValueError, match=r"Rollouts.step_size is missing, and credit.inverse_step reads it"):
        objective.prepare(Rollouts(group, mask, old, rewards), objective.init())
    with pytest.raises(ValueError, match=r"Rollouts.step_size must be positive.*lowest is 0"):
        Rollouts(group, mask, old, rewards, step_size=torch.tensor([[0.1], [0.0]]))


# Credit that falls with the logarithm of the position.


def test_shares_are_powers_of_the_log_position() -> None:
    # tau 1, n = 4: ln(1 + s) / ln 4 = 0, 1/2, ln 3 / ln 4, 1; with a = 2 ln 2 the weights are 1, 1/2, 4^-(ln 3 / ln 4)
    # = 1/3, 1/4. Their sum is 25 / 12, so the credit is 48/25, 24/25, 16/25, 12/25.
    decisions = member_ratios([1.0, 1.0, 1.0, 1.0], [1.0], [None])
    close(LogDecay(a=2 * math.log(2), tau=1.0)(decisions), [[1.92, 0.96, 0.64, 0.48], [1.0, 0.0, 0.0, 0.0], [0.0] * 4])


def test_last_is_exp_minus_a_of_the_first_at_every_length() -> None:
    for n in (2, 5, 9):
        credit = LogDecay(a=2.0, tau=10.0)(member_ratios([1.0] * n))[0]
        close(credit[-1] / credit[0], math.exp(-2.0))


# The mask of bad members that the policy has left.


FAR = math.exp(-0.6)


def test_only_bad_members_far_below_are_dropped() -> None:
    given = member_ratios([FAR, FAR], [FAR, FAR], [FAR, 1.0], [1 / FAR, 1 / FAR], advantage=[-1.0, 1.0, -1.0, -1.0])
    mask = OffPolicyMask(threshold=0.5)
    weight = mask(given)
    close(weight, [[0.0, 0.0], [1.0, 1.0], [1.0, 1.0], [1.0, 1.0]])
    assert finish(mask.measure(weight, given)) == {"off_policy_mask/dropped_mean": 0.25}


def test_the_mean_goes_over_valid_decisions_and_the_bound_itself_trains() -> None:
    given = member_ratios([FAR, None, 1.0], [FAR, None, None], advantage=-1.0)
    close(OffPolicyMask(threshold=0.31)(given), [[1.0, 0.0, 1.0], [0.0, 0.0, 0.0]])
    unmoved = member_ratios([1.0, 1.0], advantage=-1.0)
    close(OffPolicyMask(threshold=0.0)(unmoved), [[1.0, 1.0]])


def test_what_really_sampled_is_compared_with() -> None:
    given = member_ratios([1.0, 1.0], advantage=-1.0)
    close(OffPolicyMask()(given), [[1.0, 1.0]])
    away = recorded(given, behaviour_log_prob=torch.full((1, 2), -0.3, dtype=torch.float64))
    close(OffPolicyMask()(away), [[0.0, 0.0]])


def test_a_mask_stands_behind_the_mean_of_one() -> None:
    given = member_ratios([FAR, FAR], [1.0, 1.0], advantage=[-1.0, -1.0])
    chain = Credit(temporal_decay=TemporalDecay(gamma=0.5), off_policy_mask=OffPolicyMask())
    close(chain(given), [[0.0, 0.0], [4 / 3, 2 / 3]])


# Innovation 2.5: geometrically falling credit.


def test_metrics_are_means_over_members() -> None:
    # gamma 0.5: (4/3, 2/3) and (1): sums 2 and 1, first 4/3 and 1, last 2/3 and 1.
    decisions = member_ratios([None, 1.0, 1.0, None], [1.0], [None])
    credit = TemporalDecay(gamma=0.5)
    numbers = finish(credit.measure(credit(decisions), decisions))
    assert numbers == pytest.approx(
        {"temporal_decay/weight_sum": 1.5, "temporal_decay/first_weight": 7 / 6, "temporal_decay/last_weight": 5 / 6}
    )


# Gradient from the decisions of the highest entropy alone.


ENTROPY = torch.tensor([[0.4, 0.1, 0.0], [0.3, 0.2, 0.5]], dtype=torch.float64)


def decisions(entropy: torch.Tensor = ENTROPY) -> Decisions:
    return replace(member_ratios([1.0, 1.0, None], [1.0, 1.0, 1.0]), entropy=entropy)


@pytest.mark.parametrize(
    ("share", "expected"), [(1.0, 5), (0.8, 4), (0.5, 3), (0.49, 2), (0.25, 2), (0.2, 1), (1e-9, 1)]
)
def test_the_number_is_that_of_a_quantile(share: float, expected: int) -> None:
    weight = TopEntropy(share=share)(decisions())
    assert int(weight.sum()) == expected
    valid = ENTROPY[decisions().mask]
    bound = torch.quantile(valid, 1 - share)
    assert torch.equal(weight > 0, decisions().mask & (bound <= ENTROPY))


def test_ties_for_the_last_place_train() -> None:
    tied = torch.tensor([[0.4, 0.4, 0.0], [0.4, 0.1, 0.1]], dtype=torch.float64)
    given = decisions(tied)
    weight = TopEntropy(share=0.2)(given)
    close(weight, [[1.0, 1.0, 0.0], [1.0, 0.0, 0.0]])
    assert finish(TopEntropy().measure(weight, given)) == {"top_entropy/trained_mean": 0.6}
