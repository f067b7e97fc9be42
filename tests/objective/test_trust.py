"""ASPO: the inverse ratio for good decisions, softly bounded weights."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
import torch
from tests.objective.small import close, gradient, member_ratios, recorded

from groupwise.objective import Objective
from groupwise.objective.decisions import bounded, clip_shares, clipped
from groupwise.objective.ratio import Geometric, Product
from groupwise.objective.trust import (
    Aspo,
    AsymmetricClip,
    Cispo,
    Clip,
    Dppo,
    DualClip,
    Gaussian,
    GaussianKl,
    Gmpo,
    Sapo,
    Topr,
    Unbounded,
    Vespo,
)
from groupwise.records import Rollouts
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


# Innovation 2.6: a width by the sign of the advantage; with the minimum, an alias of clip.


def test_width_goes_with_the_sign() -> None:
    decisions = member_ratios([1.2, 1.5, 0.5], [1.2, 1.5, 0.5], advantage=[1.0, -1.0])
    surrogate = AsymmetricClip(eps_pos=0.3, eps_neg=0.1)(decisions.log_ratio, decisions)
    close(surrogate.value, [[1.2, 1.3, 0.5], [-1.2, -1.5, -0.9]])
    close(gradient(surrogate.value, decisions), [[1.2, 0.0, 0.5], [-1.2, -1.5, 0.0]])
    numbers = finish(surrogate.statistics)
    assert (numbers["asymmetric/pos_advantage_ratio"], numbers["asymmetric/neg_advantage_ratio"]) == (0.5, 0.5)


@pytest.mark.parametrize("advantage", [-1.5, 0.0, 2.0])
def test_is_clip_with_low_eps_neg_and_high_eps_pos(advantage: float) -> None:
    decisions = member_ratios([0.01, 0.85, 0.95, 1.0, 1.2, 1.31, 40.0], advantage=advantage)
    mine, clip = (
        region(decisions.log_ratio, decisions)
        for region in (AsymmetricClip(eps_pos=0.3, eps_neg=0.1), Clip(low=0.1, high=0.3))
    )
    close(mine.value, clip.value.tolist())
    close(gradient(mine.value, decisions), gradient(clip.value, decisions))
    assert mine.alive.equal(clip.alive)


# CISPO: the importance weight is capped, the gradient never lost.


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


# PPO's clip: pessimistic, with one bound each way.


def test_good_decisions_stop_above_and_bad_ones_below() -> None:
    decisions = member_ratios([1.1, 1.5, 0.5], [1.1, 1.5, 0.5], [1.5, 0.5, 1.0], advantage=[1.0, -1.0, 0.0])
    surrogate = Clip(low=0.2, high=0.3)(decisions.log_ratio, decisions)
    close(surrogate.value, [[1.1, 1.3, 0.5], [-1.1, -1.5, -0.8], [0.0, 0.0, 0.0]])
    close(gradient(surrogate.value, decisions), [[1.1, 0.0, 0.5], [-1.1, -1.5, 0.0], [0.0, 0.0, 0.0]])
    assert surrogate.alive.tolist() == [[True, False, True], [True, True, False], [True, True, True]]
    assert finish(surrogate.statistics) == pytest.approx(
        {"clip_ratio/low_mean": 1 / 9, "clip_ratio/high_mean": 1 / 9, "clip_ratio/region_mean": 2 / 9}
    )


# DPPO: a mask by the divergence of a decision's probability from the sampler's.


HALF = math.log(0.5)


def test_only_a_step_away_from_the_sampler_is_masked() -> None:
    # Probability 0.5 before; 0.7, 0.6, 0.3, 0.4 now; threshold 0.15. Weight: the ratio.
    decisions = member_ratios([1.4, 1.2, 0.6, 0.8], [1.4, 1.2, 0.6, 0.8], advantage=[2.0, -2.0], old=HALF)
    surrogate = Dppo(threshold=0.15)(decisions.log_ratio, decisions)
    weights = [[0.0, 2.4, 1.2, 1.6], [-2.8, -2.4, 0.0, -1.6]]
    close(gradient(surrogate.value, decisions), weights)
    close(
        surrogate.value,
        [
            [w * float(lp) for w, lp in zip(row, values, strict=True)]
            for row, values in zip(weights, decisions.log_prob.detach(), strict=True)
        ],
    )
    assert surrogate.alive.tolist() == [[False, True, True, True], [True, True, False, True]]
    assert finish(surrogate.statistics) == {
        "clip_ratio/low_mean": 0.125,
        "clip_ratio/high_mean": 0.125,
        "clip_ratio/region_mean": 0.25,
    }


def test_a_rare_decision_may_change_its_ratio_a_lot() -> None:
    # 0.001 -> 0.1 is no more than 0.15; 0.5 -> 0.7 is.
    decisions = member_ratios([100.0], advantage=1.0, old=math.log(0.001))
    assert Dppo()(decisions.log_ratio, decisions).alive.all()
    close(gradient(Dppo(maximum=20.0)(decisions.log_ratio, decisions).value, decisions), [[20.0]])


@pytest.mark.parametrize(("threshold", "alive"), [(0.08, True), (0.06, False)])
def test_binary_kl(threshold: float, alive: bool) -> None:
    # KL of (0.5, 0.5) from (0.675, 0.325): 0.5 ln(0.5/0.675) + 0.5 ln(0.5/0.325) = 0.0653.
    decisions = member_ratios([1.35], advantage=1.0, old=HALF)
    expected = 0.5 * math.log(0.5 / 0.675) + 0.5 * math.log(0.5 / 0.325)
    assert 0.06 < expected < 0.08
    assert Dppo(measure="kl", threshold=threshold)(decisions.log_ratio, decisions).alive.item() is alive


@pytest.mark.parametrize("measure", ["tv", "kl"])
def test_sure_decisions_are_finite(measure: str) -> None:
    decisions = member_ratios([1.0, math.exp(-30.0)], advantage=-1.0, old=0.0)
    surrogate = Dppo(measure=measure)(decisions.log_ratio, decisions)
    assert surrogate.value.isfinite().all()
    assert surrogate.alive.tolist() == [[True, False]]


def test_anchored_to_what_really_sampled() -> None:
    # The sampler gave 0.25 where the old policy had 0.5: at 0.45 now the ratio is 1.8 and the step up is 0.2.
    decisions = member_ratios([0.9], [0.9], advantage=[1.0, -1.0], old=HALF)
    decisions = recorded(decisions, behaviour_log_prob=torch.full((2, 1), math.log(0.25), dtype=torch.float64))
    surrogate = Dppo()(decisions.log_ratio, decisions)
    assert surrogate.alive.tolist() == [[False], [True]]
    close(gradient(surrogate.value, decisions), [[0.0], [-1.8]])


def test_without_a_threshold_it_is_cispo() -> None:
    decisions = member_ratios([0.01, 30.0, 1.0], [0.5, 7.0, 2.0], advantage=[1.5, -0.5], old=-4.0)
    mine, cispo = (
        Dppo(threshold=1.0, maximum=5.0)(decisions.log_ratio, decisions),
        Cispo(maximum=5.0)(decisions.log_ratio, decisions),
    )
    close(mine.value, cispo.value.tolist())
    close(gradient(mine.value, decisions), gradient(cispo.value, decisions))


def test_a_divergence_at_the_threshold_still_trains() -> None:
    # Probabilities 3/4 and 1/2, which fp64 keeps through their logarithms: the divergence is 1/4 exactly.
    log_prob, sampler_log_prob = (
        torch.tensor([[0.75, 0.75 + 1e-12]], dtype=torch.float64).log(),
        torch.full((1, 2), 0.5, dtype=torch.float64).log(),
    )
    decisions = recorded(
        replace(member_ratios([1.0, 1.0], advantage=1.0), log_prob=log_prob), old_log_prob=sampler_log_prob
    )
    assert Dppo(threshold=0.25)(decisions.log_ratio, decisions).alive.tolist() == [[True, False]]


# Dual clip: a floor under the surrogate of bad decisions.


def test_bad_decisions_beyond_the_bound_are_constant() -> None:
    decisions = member_ratios([5.0, 2.5, 0.5], [5.0, 2.5, 0.5], advantage=[-2.0, 2.0])
    surrogate = DualClip(low=0.2, high=0.2, bound=3.0)(decisions.log_ratio, decisions)
    close(surrogate.value, [[-6.0, -5.0, -1.6], [2.4, 2.4, 1.0]])
    close(gradient(surrogate.value, decisions), [[0.0, -5.0, 0.0], [0.0, 0.0, 1.0]])
    assert surrogate.alive.tolist() == [[False, True, False], [False, False, True]]
    assert finish(surrogate.statistics)["clip_ratio/dual_mean"] == pytest.approx(1 / 6)


# PTRW: a detached Gaussian gate on the ratio.


def test_the_gate_multiplies_and_is_not_differentiated() -> None:
    # sigma 0.2: |r - 1| = 0.2 gives exp(-1/2), 0.1 gives exp(-1/8).
    decisions = member_ratios([1.2, 0.9, 1.0], advantage=-2.0)
    surrogate = Gaussian(sigma=0.2)(decisions.log_ratio, decisions)
    expected = [[-2.4 * math.exp(-0.5), -1.8 * math.exp(-0.125), -2.0]]
    close(surrogate.value, expected)
    close(gradient(surrogate.value, decisions), expected)
    assert finish(surrogate.statistics) == pytest.approx(
        {
            "ptrw/trust_weights_mean": (math.exp(-0.5) + math.exp(-0.125) + 1) / 3,
            "ptrw/loss_mean": -sum(expected[0]) / 3,
        }
    )


def test_a_bad_decision_that_grew_is_never_reinforced_only_silenced() -> None:
    decisions = member_ratios([1.05, 2.0], advantage=-1.0)
    surrogate = Gaussian(sigma=0.2)(decisions.log_ratio, decisions)
    assert all(value <= 0 for value in gradient(surrogate.value, decisions)[0])
    assert surrogate.alive.tolist() == [[True, False]]
    assert float(surrogate.value[0, 1].detach()) == pytest.approx(-2 * math.exp(-12.5), rel=1e-12)


# Flow-DPPO: a mask by the exact divergence of a transition.


def test_only_what_moves_on_beyond_the_threshold_is_left_out() -> None:
    rows = [1.5, 0.5, 1.5, 0.5]
    decisions = member_ratios(rows, rows, advantage=[2.0, -2.0])
    divergence = torch.tensor([[0.1, 0.1, 0.01, 0.01]] * 2, dtype=torch.float64)
    decisions = replace(decisions, old_divergence=divergence)
    surrogate = GaussianKl(threshold=0.1)(decisions.log_ratio, decisions)
    values = [[0.0, 1.0, 3.0, 1.0], [-3.0, 0.0, -3.0, -1.0]]
    close(surrogate.value, values)
    close(gradient(surrogate.value, decisions), values)
    assert surrogate.alive.tolist() == [[False, True, True, True], [True, False, True, True]]
    assert finish(surrogate.statistics)["clip_ratio/region_mean"] == 0.25


# GMPO: clipped log-ratios, then the geometric mean of the member.


def test_one_sided_clip_then_the_geometric_mean() -> None:
    # Bounds ln 2. Good: min(4, 2), 1/4 -> sqrt(2/4); bad: 4, max(1/4, 1/2) -> sqrt(4/2). The clipped decision carries
    # nothing, the other half the ratio.
    decisions = member_ratios([4.0, 0.25], [4.0, 0.25], advantage=[3.0, -3.0])
    surrogate = Gmpo(low=math.log(2), high=math.log(2))(decisions.log_ratio, decisions)
    good, bad = 3 * math.sqrt(0.5), -3 * math.sqrt(2.0)
    close(surrogate.value, [[good, good], [bad, bad]])
    close(gradient(surrogate.value, decisions), [[0.0, good], [bad, 0.0]])
    assert surrogate.alive.tolist() == [[False, True], [True, False]]
    assert finish(surrogate.statistics) == {
        "clip_ratio/low_mean": 0.25,
        "clip_ratio/high_mean": 0.25,
        "clip_ratio/region_mean": 0.5,
    }


def test_each_side_has_its_own_bound() -> None:
    # Bounds ln 4 above and ln 2 below. Good: min(8, 4), 1/4 -> 1; bad: 8, max(1/8, 1/2) -> sqrt(4) and 8, 1/1.5
    # (inside) -> sqrt(8 / 1.5).
    decisions = member_ratios([8.0, 0.25], [8.0, 0.125], [8.0, 1 / 1.5], advantage=[1.0, -1.0, -1.0])
    surrogate = Gmpo(low=math.log(2), high=math.log(4))(decisions.log_ratio, decisions)
    is_inside = -math.sqrt(8 / 1.5)
    close(surrogate.value, [[1.0, 1.0], [-2.0, -2.0], [is_inside, is_inside]])
    close(gradient(surrogate.value, decisions), [[0.0, 1.0], [-2.0, 0.0], [is_inside, is_inside]])
    between = member_ratios([1.0, 0.4], advantage=-1.0)
    assert Gmpo(low=math.log(4), high=math.log(2))(between.log_ratio, between).alive.all()


def test_takes_one_advantage_a_member() -> None:
    objective = Objective.preset("gmpo")
    rollouts = Rollouts(
        torch.tensor([0, 0]),
        torch.ones(2, 2, dtype=torch.bool),
        torch.full((2, 2), -1.0),
        {"map": torch.tensor([[0.0, 1.0], [1.0, 0.0]])},
    )
    with pytest.raises(ValueError, match=r"trust.kind = 'gmpo' takes one advantage a member.*reward is a map"):
        objective.prepare(rollouts, objective.init())


def test_a_log_ratio_at_its_bound_keeps_its_gradient() -> None:
    decisions = member_ratios([2.0, 1.0], [0.5, 1.0], advantage=[1.0, -1.0], old=0.0)
    surrogate = Gmpo(low=math.log(2), high=math.log(2))(decisions.log_ratio, decisions)
    assert surrogate.alive.all()
    close(gradient(surrogate.value, decisions), [[math.sqrt(2.0)] * 2, [-math.sqrt(0.5)] * 2])


# SAPO: a sigmoid gate on the ratio, steeper for bad decisions.


def test_gate_and_slope() -> None:
    # tau 2 at ratio 1.5: sigmoid(1); tau 4 at ratio 0.75: sigmoid(-1) = 1 - sigmoid(1). At ratio 1 the slope is one.
    decisions = member_ratios([1.5, 1.0], [0.75, 1.0], advantage=[3.0, -3.0])
    surrogate = Sapo(tau_pos=2.0, tau_neg=4.0)(decisions.log_ratio, decisions)
    p = 1 / (1 + math.exp(-1.0))
    close(surrogate.value, [[2 * p * 3, 3.0], [-(1 - p) * 3, -1.5]])
    slope = 4 * p * (1 - p)
    close(gradient(surrogate.value, decisions), [[3 * 1.5 * slope, 3.0], [-3 * 0.75 * slope, -3.0]])
    assert finish(surrogate.statistics) == pytest.approx({"sapo/gradient_weight_mean": (2 + 2 * slope) / 4})


def test_the_temperature_is_read_in_the_dtype_of_the_scores() -> None:
    decisions = member_ratios([1.0], advantage=-1.0)
    assert Sapo(tau_neg=1.05)(decisions.log_ratio, decisions).value.item() == pytest.approx(-2 / 1.05, abs=1e-15)


def test_far_off_policy_counts_as_without_gradient() -> None:
    # 4 p (1 - p) < 0.01 from |tau (r - 1)| = 5.99 on; a falling ratio never gets there, since r - 1 > -1.
    decisions = member_ratios([6.9, 7.1, 0.001], advantage=1.0)
    assert Sapo()(decisions.log_ratio, decisions).alive.tolist() == [[True, False, True]]


# TOPR: good members with weight one, bad ones by a ratio that may only fall.


def test_weights_of_members() -> None:
    # Products 0.5, 4 and 0.25, 4: the good members weigh 1, the bad ones 0.25 and 1, which alone are in the metric.
    decisions = member_ratios(
        [0.5, 1.0], [4.0, 1.0], [0.5, 0.5], [4.0, 1.0], advantage=[2.0, 2.0, -2.0, -2.0], old=-3.0
    )
    surrogate = Topr()(Product()(decisions.log_ratio, decisions), decisions)
    weight = [[2.0, 2.0], [2.0, 2.0], [-0.5, -0.5], [-2.0, -2.0]]
    close(gradient(surrogate.value, decisions), weight)
    close(
        surrogate.value,
        [
            [w * float(lp) for w, lp in zip(row, values, strict=True)]
            for row, values in zip(weight, decisions.log_prob.detach(), strict=True)
        ],
    )
    assert surrogate.alive.all()
    assert finish(surrogate.statistics) == {"topr/taper_mean": 0.625}


# No trust region, as a ratio and as a score function.


def test_ratio_form_is_rho_times_advantage() -> None:
    decisions = member_ratios([4.0, 0.5], advantage=-2.0)
    surrogate = Unbounded()(decisions.log_ratio, decisions)
    close(surrogate.value, [[-8.0, -1.0]])
    close(gradient(surrogate.value, decisions), [[-8.0, -1.0]])
    assert surrogate.alive.all()


def test_log_prob_form_ignores_the_ratio() -> None:
    decisions = member_ratios([1.0, 1.0], advantage=-2.0, old=-3.0)
    surrogate = Unbounded(form="log_prob")(decisions.log_ratio * 5, decisions)
    close(surrogate.value, [[6.0, 6.0]])
    close(gradient(surrogate.value, decisions), [[-2.0, -2.0]])


# VESPO: a gamma-shaped weight on the member's importance ratio.


def test_weight_by_sign() -> None:
    # W = 2 and 1/2. A >= 0: 4 e^-3 and e^1.5 / 4; A < 0: 8 e^-2 and e / 8.
    decisions = member_ratios(
        [4.0, 0.5], [0.5, 1.0], [4.0, 0.5], [0.5, 1.0], [4.0, 0.5], advantage=[1.0, 1.0, -1.0, -1.0, 0.0], old=-3.0
    )
    surrogate = Vespo()(Product()(decisions.log_ratio, decisions), decisions)
    weights = [4 * math.exp(-3.0), math.exp(1.5) / 4, 8 * math.exp(-2.0), math.exp(1.0) / 8, 4 * math.exp(-3.0)]
    close(
        gradient(surrogate.value, decisions),
        [[weights[0]] * 2, [weights[1]] * 2, [-weights[2]] * 2, [-weights[3]] * 2, [0.0] * 2],
    )
    assert finish(surrogate.statistics) == pytest.approx({"vespo/weight_mean": sum(weights) / 5})


def test_the_weight_is_one_at_ratio_one_and_zero_far_away() -> None:
    decisions = member_ratios([1.0], [math.exp(50.0)], [math.exp(-50.0)], advantage=[1.5, 1.0, -1.0], old=-60.0)
    surrogate = Vespo()(decisions.log_ratio, decisions)
    close(gradient(surrogate.value, decisions), [[1.5], [0.0], [0.0]])
    assert surrogate.alive.tolist() == [[True], [False], [False]]


def test_clamped_in_log_space() -> None:
    # At the limit 1: ln w = -1, phi = exp(3 - 2 - 3/e).
    decisions = member_ratios([math.exp(-5.0)], advantage=1.0)
    close(gradient(Vespo(limit=1.0)(decisions.log_ratio, decisions).value, decisions), [[math.exp(1 - 3 / math.e)]])


# The pessimistic clip by hand.


def test_only_the_pessimistic_side_is_held() -> None:
    decisions = member_ratios([1.5, 0.5], [1.5, 0.5], [1.5, 0.5], advantage=[1.0, -2.0, 0.0])
    value, too_low, too_high = clipped(decisions.log_ratio, decisions, low=0.1, high=0.3)
    close(value, [[1.3, 0.5], [-3.0, -1.8], [0.0, 0.0]])
    close(gradient(value, decisions), [[0.0, 0.5], [-3.0, 0.0], [0.0, 0.0]])
    assert too_low.tolist() == [[False, False], [False, True], [False, False]]
    assert too_high.tolist() == [[True, False], [False, False], [False, False]]


def test_each_side_has_its_own_width() -> None:
    # Between the two widths: 0.8 lies below 1 - 0.1 and not below 1 - 0.3, 1.2 lies above neither 1 + 0.3.
    decisions = member_ratios([1.2, 1.4, 0.8], [1.2, 0.8, 0.95], [1.2, 0.5, None], advantage=[1.0, -1.0, -1.0])
    value, too_low, too_high = clipped(decisions.log_ratio, decisions, low=0.1, high=0.3)
    close(decisions.masked(value), [[1.2, 1.3, 0.8], [-1.2, -0.9, -0.95], [-1.2, -0.9, 0.0]])
    close(gradient(value, decisions), [[1.2, 0.0, 0.8], [-1.2, 0.0, -0.95], [-1.2, 0.0, 0.0]])
    shares = {"clip_ratio/low_mean": 2 / 8, "clip_ratio/high_mean": 1 / 8, "clip_ratio/region_mean": 3 / 8}
    assert finish(clip_shares(too_low, too_high, decisions)) == shares


def test_an_edge_belongs_to_the_region() -> None:
    # At the edge, which fp64 holds exactly, and next to it on either side: what torch makes of PPO's formula, as TRL
    # and verl have it.
    for edge, sign in ((1.25, 1.0), (0.75, -1.0)):
        decisions, again = (
            member_ratios([edge - 1e-15 * sign, edge, edge + 1e-15 * sign], advantage=[2.0 * sign], old=0.0)
            for _ in range(2)
        )
        ratio = again.log_ratio.exp()
        assert ratio[0, 1] == edge
        value, too_low, too_high = clipped(decisions.log_ratio, decisions, low=0.25, high=0.25)
        ppo = torch.min(ratio * 2.0 * sign, torch.clamp(ratio, 0.75, 1.25) * 2.0 * sign)
        assert torch.equal(value, ppo)
        assert (slopes := gradient(value, decisions)) == gradient(ppo, again)
        assert [slope != 0 for slope in slopes[0]] == [True, True, False]
        assert (too_low | too_high).tolist() == [[False, False, True]]


# The optional bound on an advantage.


def test_clamped_both_ways_or_left() -> None:
    values = torch.tensor([-5.0, 0.5, 5.0])
    assert bounded(values, 3.0).tolist() == [-3.0, 0.5, 3.0]
    assert bounded(values, None) is values
