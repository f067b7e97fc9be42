"""DPPO: a mask by the divergence of a decision's probability from the sampler's."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
import torch
from tests.objective.small import close, gradient, member_ratios, recorded

from groupwise.objective import Objective
from groupwise.objective.trust import Cispo, Dppo
from groupwise.records import Rollouts
from groupwise.statistics import finish

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


def test_densities_have_no_probabilities() -> None:
    objective = Objective.preset("dppo_tv")
    rollouts = Rollouts(
        torch.tensor([0, 0]), torch.ones(2, 1, dtype=torch.bool), torch.ones(2, 1), {"reward": [0.0, 1.0]}, density=True
    )
    with pytest.raises(
        ValueError, match=r"density=True.*trust.kind = 'dppo' needs the probabilities.*write trust.kind = 'clip'"
    ):
        objective.prepare(rollouts, objective.init())


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
